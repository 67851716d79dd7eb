// controller-runtime-peer is a controller that does nothing: the peer in Go of `make bench-runtime`.
// It reads each object from the manager's cache once and appends one record to a file when all have been.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

var websites = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Website"}

// now is CLOCK_MONOTONIC and the CPU time of this process, in seconds.
func now() (at, cpu float64) {
	var clock unix.Timespec
	var used unix.Rusage
	must(unix.ClockGettime(unix.CLOCK_MONOTONIC, &clock))
	must(unix.Getrusage(unix.RUSAGE_SELF, &used))
	seconds := func(t unix.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
	return float64(clock.Sec) + float64(clock.Nsec)/1e9, seconds(used.Utime) + seconds(used.Stime)
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	namespace := flag.String("namespace", "default", "where the objects are")
	objects := flag.Int64("objects", 0, "how many there are")
	report := flag.String("report", "", "file for the record")
	metadata := flag.Bool("metadata", false, "watch metadata only")
	workers := flag.Int("workers", 8, "reconciles at the same time")
	flag.Parse()
	log.SetLogger(zap.New())

	manager, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Cache:   cache.Options{DefaultNamespaces: map[string]cache.Config{*namespace: {}}},
		Client:  client.Options{Cache: &client.CacheOptions{Unstructured: true}},
		Metrics: server.Options{BindAddress: "0"},
	})
	must(err)
	fresh := func() client.Object {
		if *metadata {
			partial := &metav1.PartialObjectMetadata{}
			partial.SetGroupVersionKind(websites)
			return partial
		}
		whole := &unstructured.Unstructured{}
		whole.SetGroupVersionKind(websites)
		return whole
	}

	var count atomic.Int64
	var firstAt, cpuBefore float64
	look := func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		if err := manager.GetClient().Get(ctx, request.NamespacedName, fresh()); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		switch count.Add(1) {
		case 1:
			firstAt, cpuBefore = now()
		case *objects:
			at, cpu := now()
			line := fmt.Sprintf(`{"e":"loaded","count":%d,"first_at":%f,"at":%f,"cpu_s":%f}`+"\n", *objects, firstAt, at, cpu-cpuBefore)
			must(os.WriteFile(*report, []byte(line), 0o644))
		}
		return reconcile.Result{}, nil
	}
	must(ctrl.NewControllerManagedBy(manager).Named("websites").
		For(fresh()).
		WithOptions(controller.Options{MaxConcurrentReconciles: *workers}).
		Complete(reconcile.Func(look)))
	must(manager.Start(ctrl.SetupSignalHandler()))
}
