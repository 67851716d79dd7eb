"""Faults of processes and machines: killed, frozen, slow, copied, suspended; members that come and go."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from devcluster.embedded.status import Refusal
from simulation.faults.strike import LEASES_PATH, Strike, fault
from simulation.network import Rule


@fault
def process_killed(strike: Strike) -> None:
    """kill -9."""
    if process := strike.process(strike.rng.choice(("replica", "sharder"))):
        strike.note(f"process_killed {process}")
        process.kill()


@fault
def process_terminated(strike: Strike) -> None:
    """SIGTERM; it is started again."""
    if process := strike.process(strike.rng.choice(("replica", "replica", "sharder"))):
        strike.note(f"process_terminated {process}")
        strike.fleet.terminate(process.name)


@fault
def process_frozen(strike: Strike) -> None:
    """SIGSTOP, and SIGCONT later."""
    if process := strike.process(strike.rng.choice(("replica", "replica", "sharder"))):
        for_s = strike.span_s()
        strike.note(f"process_frozen {process} for {for_s:.1f} s")
        process.freeze()
        strike.heal_in(for_s, process.thaw)


@fault
def thread_frozen(strike: Strike) -> None:
    """One thread stands still: a blocked event loop, or a starved heartbeat."""
    if process := strike.process("replica"):
        loop = strike.rng.choice(process.loops)
        for_s = strike.span_s() * strike.rng.choice((1, 1, 5))
        strike.note(f"thread_frozen {process} {loop.name} for {for_s:.1f} s")
        process.freeze(loop)
        strike.heal_in(for_s, process.thaw)


@fault
def threads_frozen(strike: Strike) -> None:
    """Every thread of a replica stands still, as if it waited for one lock: only the kernel's timer runs on."""
    if (replica := strike.live_shard()) is None:
        return
    strike.note(f"threads_frozen {replica.process}")
    age_s = replica.lease_age_s
    is_young = age_s is not None and age_s < replica.lease_s / 2
    # with an old Lease it may do nothing: then it may live
    strike.stand_still(replica, judged_in_s=2.1 * strike.lease_s if is_young else None)


@fault
def process_slowed(strike: Strike) -> None:
    """Each iteration of its loops takes time."""
    if process := strike.process():
        process.slow_s = strike.rng.choice((0.005, 0.05, 0.3))
        for_s = strike.span_s() * 2
        strike.note(f"process_slowed {process}: {process.slow_s} s per iteration for {for_s:.1f} s")
        strike.heal_in(for_s, process.speed_up)


@fault
def process_copied(strike: Strike) -> None:
    """A copy of a replica's memory renews its Lease too; what the copy writes is all that is simulated of it."""
    replica = strike.replica()
    if replica is None or not replica.shard:
        return
    path = f"{LEASES_PATH}/{replica.shard}"
    with suppress(Refusal):
        lease = strike.request("GET", path)
        if lease["spec"].get("holderIdentity") != replica.shard:
            return
        strike.note(f"process_copied {replica.process}")
        replica.is_copied = True
        lease["spec"]["renewTime"] = replica.process.machine.wall().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        strike.forge("PUT", path, lease)
        strike.fleet.world.after(
            1.5 * strike.lease_s,
            partial(strike.fleet.judges.leases.judge_copy, replica, strike.fleet.world.now),
        )


@fault
def birth_unanswered(strike: Strike) -> None:
    """A replica is killed, and its next life gets no answers at first: to its CREATE, to all writes, or none at all."""
    if (replica := strike.replica()) is None:
        return
    name, for_s = replica.process.name, strike.rng.choice((strike.span_s(), 2.5 * strike.lease_s)) + 5
    strike.note(f"birth_unanswered {name} for {for_s:.1f} s")
    verb = strike.rng.choice(("POST", "POST", "write", ""))
    strike.add_rule(Rule("answer_lost", process=name, verb=verb), for_s)
    if verb == "POST":  # it cannot look for the Lease that it made, either
        strike.add_rule(Rule("request_lost", process=name, path=f"leases/{name}-"), for_s)
    replica.process.kill()


@fault
def birth_without_caches(strike: Strike) -> None:
    """A replica is killed, and its next life has a Lease, but cannot list its objects."""
    if (replica := strike.replica()) is None:
        return
    name, for_s = replica.process.name, strike.span_s() + 5
    strike.note(f"birth_without_caches {name} for {for_s:.1f} s")
    strike.add_rule(Rule("request_lost", process=name, verb="read", path="/apis/example.com/v1/"), for_s)
    replica.process.kill()


@fault
def heir_ends(strike: Strike) -> None:
    """A replica ends in good order, and for a moment the sharders do not hear of it; objects are created."""
    leader, replica = strike.leader(), strike.live_shard()
    if leader is None or replica is None:
        return
    for_s = strike.rng.uniform(1, 6)
    strike.note(f"heir_ends {replica.process}, unheard for {for_s:.1f} s")
    strike.add_rule(Rule("request_late", process=leader.name, verb="read", path="leases", delay_s=2), for_s)
    sharders = strike.processes("sharder")
    for stream in strike.fleet.network.streams:
        if stream.process in sharders and "/leases" in stream.path:
            stream.held_until = strike.fleet.world.now + for_s
    strike.fleet.terminate(replica.process.name)
    for _ in range(20):
        strike.go_on_in(strike.rng.uniform(0.3, for_s), strike.users.create_one)


@fault
def creates_late(strike: Strike) -> None:
    """What a replica creates arrives late, some of it after the client's deadline; its children are to be made anew."""
    if (replica := strike.live_shard()) is None:
        return
    name, for_s = replica.process.name, strike.rng.uniform(1, 20)
    late_s = strike.rng.choice((5.0, 59.0, 59.0))
    strike.note(f"creates_late of {name}: up to {late_s} s, for {for_s:.1f} s")
    rule = Rule("request_late", verb="POST", path="configmaps", process=name, delay_s=late_s)
    broken = Rule("server_errors", verb="POST", path="configmaps", process=name, code=504, share=0.5)
    strike.add_rule(strike.rng.choice((rule, rule, broken)), for_s)
    strike.delete_children(owner=replica.shard)
    cordon = partial(strike.set_member, name, {"cordoned": True}, 60.0)
    end = strike.rng.choice((cordon, cordon, partial(strike.fleet.terminate, name)))
    strike.go_on_in(strike.rng.uniform(0, 20), end)


@fault
def leader_killed(strike: Strike) -> None:
    """kill -9 of the leading sharder."""
    if process := strike.leader():
        strike.note(f"leader_killed {process}")
        process.kill()


@fault
def leader_frozen(strike: Strike) -> None:
    """The leading sharder is stopped, and goes on where it was."""
    if process := strike.leader():
        for_s = strike.span_s()
        strike.note(f"leader_frozen {process} for {for_s:.1f} s")
        process.freeze()
        strike.heal_in(for_s, process.thaw)


def _free_name(strike: Strike) -> str:
    """The first name that no replica has; empty if the fleet is whole."""
    taken = {name for name in strike.fleet.wanted if name.startswith("replica")}
    names = (f"replica-{number}" for number in range(strike.fleet.scale.most_replicas))
    return next((name for name in names if name not in taken), "")


@fault
def member_joined(strike: Strike) -> None:
    """One replica more."""
    if name := _free_name(strike):
        strike.note(f"member_joined {name}")
        strike.fleet.add(name)


@fault
def member_turned_back(strike: Strike) -> None:
    """One replica more, that leaves as soon as objects are on their way to it."""
    if name := _free_name(strike):
        strike.note(f"member_turned_back {name}")
        strike.fleet.add(name)
        strike.go_on_in(strike.rng.uniform(4, 12), partial(strike.fleet.remove, name))


@fault
def member_left(strike: Strike) -> None:
    """The last replica is taken away for good."""
    names = sorted(name for name in strike.fleet.wanted if name.startswith("replica"))
    if len(names) > strike.fleet.scale.fewest_replicas:
        strike.note(f"member_left {names[-1]}")
        strike.fleet.remove(names[-1])


@fault
def version_rolled(strike: Strike) -> None:
    """Every process is ended and started again, one after the other."""
    strike.note("version_rolled")
    for number, name in enumerate(sorted(strike.fleet.wanted)):
        strike.go_on_in(number * 4.0, partial(strike.fleet.terminate, name))


@fault
def machine_suspended(strike: Strike) -> None:
    """A laptop lid, or a guest that suspends itself: CLOCK_BOOTTIME runs on."""
    machine, for_s = strike.machine(), strike.span_s()
    if machine.is_running:
        strike.note(f"machine_suspended {machine.name} for {for_s:.1f} s")
        machine.suspend()
        strike.heal_in(for_s, machine.resume)


@fault
def machine_stopped(strike: Strike) -> None:
    """A hypervisor stops it: its clocks stand still."""
    machine, for_s = strike.machine(), strike.span_s()
    if machine.is_running:
        strike.note(f"machine_stopped {machine.name} for {for_s:.1f} s")
        machine.stop()
        strike.heal_in(for_s, machine.resume)


@fault
def machine_lost(strike: Strike) -> None:
    """Every process of a machine ends at once."""
    machine = strike.machine()
    strike.note(f"machine_lost {machine.name}")
    for process in strike.processes():
        if process.machine is machine:
            process.kill()


@fault
def clock_jumped(strike: Strike) -> None:
    """The wall clock of a machine is set."""
    machine, seconds = strike.machine(), strike.rng.choice((-3600.0, -30.0, 30.0, 3600.0))
    strike.note(f"clock_jumped {machine.name} by {seconds:g} s")
    machine.jump(seconds)


@fault
def clock_drifted(strike: Strike) -> None:
    """A clock runs wrong by half a thousandth: what NTP corrects at most."""
    machine, rate = strike.machine(), 1 + strike.rng.choice((-5e-4, 5e-4))
    strike.note(f"clock_drifted {machine.name} to {rate:g}")
    machine.drift(rate)
