//go:build kube

package itest

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// kubelets stands in for the kubelets of all nodes: each bound pod runs and is ready at once, and a pod that is deleted stops after a
// while and is then gone.
type kubelets struct {
	client kubernetes.Interface
	pods   corelisters.PodLister
	stops  time.Duration // how long a pod takes to stop
	queue  workqueue.TypedRateLimitingInterface[cache.ObjectName]
}

// run handles the pods until the context ends.
func (k *kubelets) run(ctx context.Context, pods cache.SharedIndexInformer) {
	k.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]())
	seen := func(object any) {
		pod := object.(*corev1.Pod)
		if pod.Spec.NodeName == "" {
			return
		}
		if pod.DeletionTimestamp != nil {
			k.queue.AddAfter(cache.MetaObjectToName(pod), k.stops)
		} else if pod.Status.Phase == corev1.PodPending {
			k.queue.Add(cache.MetaObjectToName(pod))
		}
	}
	pods.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: seen, UpdateFunc: func(_, now any) { seen(now) }})
	for range 8 {
		go k.work(ctx)
	}
	<-ctx.Done()
	k.queue.ShutDown()
}

func (k *kubelets) work(ctx context.Context) {
	for {
		name, shutdown := k.queue.Get()
		if shutdown {
			return
		}
		if err := k.sync(ctx, name); err != nil && !apierrors.IsNotFound(err) {
			k.queue.AddRateLimited(name)
		}
		k.queue.Done(name)
	}
}

func (k *kubelets) sync(ctx context.Context, name cache.ObjectName) error {
	pod, err := k.pods.Pods(name.Namespace).Get(name.Name)
	if err != nil {
		return err
	}
	pods := k.client.CoreV1().Pods(pod.Namespace)
	if pod.DeletionTimestamp != nil {
		now := int64(0)
		return pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	}
	if pod.Status.Phase != corev1.PodPending {
		return nil
	}
	runs := fmt.Appendf(nil, `{"metadata":{"uid":%q},"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`, pod.UID)
	_, err = pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, runs, metav1.PatchOptions{}, "status")
	return err
}
