package kubeorbit

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/orbitsched/orbit/internal/send"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// lostAfter is the time between failures of a list or a watch, without a success, from which on the API server counts as lost. It is
// shorter than the time after which a leader gives up, so that the log says first what has failed.
const lostAfter = 5 * time.Second

// contact records which lists and watches fail. It is needed because an informer that cannot connect retries without an error to its
// owner.
type contact struct {
	mu sync.Mutex
	// The requests that fail, such as "watch pods".
	failing map[string]failure
}

// failure is since when a request fails, and when and why it has failed last.
type failure struct {
	since, last time.Time
	err         error
}

// note notes the outcome of a list or a watch of a kind. A watch begins after a list or with one, so if it succeeds, both have.
func (c *contact) note(ctx context.Context, verb, kind string, err error) {
	if ctx.Err() != nil { // the informer ends
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	request := verb + " " + kind
	if err == nil {
		delete(c.failing, request)
		if verb == "watch" {
			delete(c.failing, "list "+kind)
		}
		return
	}
	if c.failing == nil {
		c.failing = map[string]failure{}
	}
	f, known := c.failing[request]
	if f.last, f.err = time.Now(), err; !known {
		f.since = f.last
	}
	c.failing[request] = f
}

// trouble returns why the API server is lost, and since when: of the requests that fail for long, the one that has failed for
// longest. Nil: it is not lost.
func (c *contact) trouble() (since time.Time, why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, request := range slices.Sorted(maps.Keys(c.failing)) {
		if f := c.failing[request]; f.last.Sub(f.since) >= lostAfter && (why == nil || f.since.Before(since)) {
			why, since = fmt.Errorf("%s: %w", request, f.err), f.since
		}
	}
	return since, why
}

// attend says in the log when the API server is lost and when it is back, and calls OnStatus, until the context ends.
func (r *run) attend(ctx context.Context) error {
	var began time.Time // of the loss that was logged; zero: none
	for send.Pause(ctx, lookEvery) {
		since, why := r.mirror.contact.trouble()
		switch {
		case why != nil && began.IsZero():
			began = since
			r.log.Error("kubeorbit: the API server is lost, or refuses what the scheduler reads; it is asked again and again", "error", why)
		case why == nil && !began.IsZero():
			r.log.Info("kubeorbit: the API server is back", "after", time.Since(began).Round(time.Second))
			began = time.Time{}
		}
		if r.OnStatus != nil {
			status := Status{Lost: why}
			if waiting := r.waiting.Load(); waiting != nil {
				status.Waiting = *waiting
			}
			r.OnStatus(status)
		}
	}
	return context.Cause(ctx)
}

// readable is the client of a kind of objects.
type readable[L runtime.Object] interface {
	List(ctx context.Context, o metav1.ListOptions) (L, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// informer returns the informer of a kind. What its lists and watches meet is noted.
func informer[L runtime.Object](m *mirror, kind string, object runtime.Object, from readable[L]) cache.SharedIndexInformer {
	return m.factory.InformerFor(object, func(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		requests := &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				list, err := from.List(ctx, o)
				m.contact.note(ctx, "list", kind, err)
				return list, err
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				w, err := from.Watch(ctx, o)
				m.contact.note(ctx, "watch", kind, err)
				return w, err
			},
		}
		i := cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(requests, client), object, resync, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
		// The default would log every failure.
		_ = i.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {})
		return i
	})
}
