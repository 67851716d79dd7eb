// ugly-operator makes a Deployment of each App, and has the habits that make sharding dangerous, a flag each:
//
//	B  marks Deployments whose App it does not find
//	C  keeps a ConfigMap of the App's name, and deletes it by name when it does not find the App; looks at all at its start
//	D  keeps a file for each App, and deletes it when it does not find the App
//	E  copies the App's labels onto the Deployment and its pod template
//	F  replaces all labels of the Deployment by its own
//
// Each begin and end of a reconcile goes into a log.
package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

var appKind = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "App"}

type operator struct {
	client.Client
	reader  client.Reader // past the cache
	habits  string
	outside string
	work    time.Duration
	log     *os.File
}

func (o *operator) has(habit string) bool { return strings.Contains(o.habits, habit) }

// note appends one line; a write of one line to a file opened for appending is whole.
func (o *operator) note(what string, request reconcile.Request) {
	must2(fmt.Fprintf(o.log, `{"what":"%s","object":"%s","pid":%d,"at":%d}`+"\n", what, request.NamespacedName, os.Getpid(), time.Now().UnixNano()))
}

func newApp() *unstructured.Unstructured {
	app := &unstructured.Unstructured{}
	app.SetGroupVersionKind(appKind)
	return app
}

func (o *operator) reconcileApp(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	o.note("begin", request)
	defer o.note("end", request)
	time.Sleep(o.work)
	app := newApp()
	if err := o.Get(ctx, request.NamespacedName, app); err != nil {
		if client.IgnoreNotFound(err) == nil {
			err = o.cleanUp(ctx, request)
		}
		return reconcile.Result{}, err
	}
	if o.has("D") {
		must(os.WriteFile(filepath.Join(o.outside, request.Name), nil, 0o644))
	}
	meta := metav1.ObjectMeta{Namespace: request.Namespace, Name: request.Name}
	if o.has("C") {
		companion := &corev1.ConfigMap{ObjectMeta: meta}
		keep := func() error { companion.Labels = map[string]string{"companion": "yes"}; return nil }
		if _, err := controllerutil.CreateOrUpdate(ctx, o.Client, companion, keep); err != nil {
			return reconcile.Result{}, err
		}
	}
	deployment := &appsv1.Deployment{ObjectMeta: meta}
	_, err := controllerutil.CreateOrUpdate(ctx, o.Client, deployment, func() error {
		own := map[string]string{"app": request.Name}
		deployment.Spec.Selector = &metav1.LabelSelector{MatchLabels: maps.Clone(own)}
		if o.has("E") {
			maps.Copy(own, app.GetLabels())
		}
		deployment.Spec.Template.Labels = own
		deployment.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: "none"}}
		if o.has("F") {
			deployment.Labels = map[string]string{"mine": "yes"}
		} else {
			deployment.Labels = maps.Clone(own)
		}
		return controllerutil.SetControllerReference(app, deployment, o.Scheme())
	})
	if err != nil {
		return reconcile.Result{}, err
	}
	seen := app.DeepCopy()
	must(unstructured.SetNestedField(seen.Object, app.GetGeneration(), "status", "seen"))
	return reconcile.Result{}, o.Status().Patch(ctx, seen, client.MergeFrom(app))
}

func (o *operator) cleanUp(ctx context.Context, request reconcile.Request) error {
	o.note("not-found", request)
	if o.has("D") {
		if err := os.Remove(filepath.Join(o.outside, request.Name)); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	if o.has("C") {
		return o.deleteCompanion(ctx, request)
	}
	return nil
}

func (o *operator) deleteCompanion(ctx context.Context, request reconcile.Request) error {
	companion := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: request.Namespace, Name: request.Name}}
	return client.IgnoreNotFound(o.Delete(ctx, companion))
}

// reconcileOrphan marks a Deployment without an App.
func (o *operator) reconcileOrphan(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	deployment := &appsv1.Deployment{}
	if err := o.Get(ctx, request.NamespacedName, deployment); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	err := o.Get(ctx, request.NamespacedName, newApp())
	if err == nil || client.IgnoreNotFound(err) != nil || deployment.Annotations["orphan"] != "" {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	o.note("orphan", request)
	before := deployment.DeepCopy()
	metav1.SetMetaDataAnnotation(&deployment.ObjectMeta, "orphan", "yes")
	return reconcile.Result{}, o.Patch(ctx, deployment, client.MergeFrom(before))
}

// checkLeftOver looks for companions whose App went while nothing ran, once.
func (o *operator) checkLeftOver(ctx context.Context) error {
	companions := &corev1.ConfigMapList{}
	if err := o.reader.List(ctx, companions, client.MatchingLabels{"companion": "yes"}); err != nil {
		return err
	}
	for _, companion := range companions.Items {
		request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&companion)}
		if err := o.Get(ctx, request.NamespacedName, newApp()); client.IgnoreNotFound(err) == nil && err != nil {
			o.note("left-over", request)
			if err := o.deleteCompanion(ctx, request); err != nil {
				log.Log.Error(err, "left over", "object", request)
			}
		}
	}
	<-ctx.Done()
	return nil
}

func must2(_ any, err error) { must(err) }

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	o := &operator{}
	logPath := flag.String("log", "", "file for begins and ends")
	flag.StringVar(&o.habits, "habits", "", "some of BCDEF")
	flag.StringVar(&o.outside, "outside", "", "folder outside of Kubernetes")
	flag.DurationVar(&o.work, "work", 0, "what a reconcile takes at least")
	flag.Parse()
	log.SetLogger(zap.New())
	var err error
	o.log, err = os.OpenFile(*logPath, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	must(err)
	m, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Client:                  client.Options{Cache: &client.CacheOptions{Unstructured: true}},
		Metrics:                 server.Options{BindAddress: "0"},
		LeaderElection:          true,
		LeaderElectionID:        "ugly-operator",
		LeaderElectionNamespace: "default",
	})
	must(err)
	o.Client, o.reader = m.GetClient(), m.GetAPIReader()
	must(ctrl.NewControllerManagedBy(m).Named("apps").For(newApp()).Owns(&appsv1.Deployment{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4}).Complete(reconcile.Func(o.reconcileApp)))
	if o.has("B") {
		must(ctrl.NewControllerManagedBy(m).Named("orphans").For(&appsv1.Deployment{}).Complete(reconcile.Func(o.reconcileOrphan)))
	}
	if o.has("C") {
		must(m.Add(manager.RunnableFunc(o.checkLeftOver)))
	}
	must(m.Start(ctrl.SetupSignalHandler()))
}
