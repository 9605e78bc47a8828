package kubeorbit

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	ktesting "k8s.io/client-go/testing"
)

// overheard is what a scheduler logs and says of itself.
type overheard struct {
	mu    sync.Mutex
	lines strings.Builder
	last  Status
}

// Write implements io.Writer.
func (o *overheard) Write(text []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lines.Write(text)
}

// count returns how many lines have a text.
func (o *overheard) count(text string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Count(o.lines.String(), text)
}

func (o *overheard) status() Status {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last
}

// overhear has the next run of a scheduler say all to the result.
func (c *cluster) overhear() *overheard {
	o := &overheard{}
	c.schedule = &Scheduler{
		Logger: slog.New(slog.NewTextHandler(o, nil)),
		OnStatus: func(s Status) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.last = s
		},
	}
	return o
}

// line is the wire between a scheduler and the API server. While it is cut, the lists and watches that fail says so fail, and
// those that are under way end.
type line struct {
	mu    sync.Mutex
	open  []watch.Interface
	fails func(verb, resource string) error
	// The kinds whose watch has failed. The API server in memory keeps no history from which the next watch could go on.
	gaps map[string]bool
}

// tap lets the test cut the lists and watches of a cluster.
func (c *cluster) tap() *line {
	l := &line{gaps: map[string]bool{}}
	ask := func(a ktesting.Action) error {
		if l.fails == nil {
			return nil
		}
		return l.fails(a.GetVerb(), a.GetResource().Resource)
	}
	c.PrependReactor("list", "*", func(a ktesting.Action) (bool, runtime.Object, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		err := ask(a)
		return err != nil, nil, err
	})
	c.PrependWatchReactor("*", func(a ktesting.Action) (bool, watch.Interface, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		kind := a.GetResource().Resource
		if err := ask(a); err != nil {
			l.gaps[kind] = true
			return true, nil, err
		}
		if l.gaps[kind] {
			delete(l.gaps, kind)
			return true, nil, apierrors.NewResourceExpired("the history begins later")
		}
		w, err := c.Tracker().Watch(a.GetResource(), a.GetNamespace())
		l.open = append(l.open, w)
		return true, w, err
	})
	return l
}

// cut has requests fail; nil: none does.
func (l *line) cut(fails func(verb, resource string) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fails = fails
	for _, w := range l.open {
		w.Stop()
	}
	l.open = nil
}

// refused is what a client gets while no API server listens.
func refused(_, _ string) error {
	return &url.Error{Op: "Get", URL: "https://api", Err: syscall.ECONNREFUSED}
}

const (
	lostLine = "the API server is lost"
	backLine = "the API server is back"
)

// What goes while nothing can be watched has gone when all is listed again.
func TestWhatGoesWhileNothingIsWatched(t *testing.T) {
	onlyVolumes := func(verb, resource string) error {
		if resource != "persistentvolumes" {
			return nil
		}
		return refused(verb, resource)
	}
	t.Run("anything", func(t *testing.T) { goesWhile(t, refused, true) })
	t.Run("volumes", func(t *testing.T) { goesWhile(t, onlyVolumes, false) })
}

func goesWhile(t *testing.T, fails func(verb, resource string) error, all bool) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a", "b +cpu=1")
		c.claimed()
		_, err := c.PolicyV1().PodDisruptionBudgets("default").Create(t.Context(), guard(t), metav1.CreateOptions{})
		require.NoError(t, err)
		l := c.tap()
		waits := podFrom(t, strings.Replace(big, "'4'", "'9'", 1))
		waits.Name, waits.Spec.Volumes = "waits", []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
		c.add(podFrom(t, big), waits)
		c.run()
		c.until("the pod is bound", func() bool { return c.bound("big") == 1 })
		c.pass(5 * time.Second)
		require.True(t, saysWhy(c.pod("waits"), "lack cpu"), c.whyNot())
		l.cut(fails)
		c.pass(5 * time.Second)
		if all {
			require.NoError(t, c.Tracker().Delete(pods, "default", "big"))
			require.NoError(t, c.CoreV1().Nodes().Delete(t.Context(), "b", metav1.DeleteOptions{}))
			require.NoError(t, c.PolicyV1().PodDisruptionBudgets("default").Delete(t.Context(), "guard", metav1.DeleteOptions{}))
		}
		require.NoError(t, c.CoreV1().PersistentVolumes().Delete(t.Context(), "v", metav1.DeleteOptions{}))
		c.pass(5 * time.Second)
		l.cut(nil)
		c.pass(2 * time.Minute)
		state, err := c.ledger.Snapshot(t.Context())
		require.NoError(t, err)
		_, has := state.Budget("default/guard")
		require.Equal(t, all, !has)
		require.Equal(t, all, state.Node("b") == nil)
		for k := range state.Capsules() { // one pod has gone, the other cannot be said any more
			gone := k.Released() && k.Remains() == nil
			require.Equal(t, all || podOf(k.ID).Name == "waits", gone, "%s: %s", k.ID, c.whyNot())
		}
		require.True(t, saysWhy(c.pod("waits"), "volume"), c.whyNot())
		c.kill()
	})
}

// When the API server is lost for some time, one line says so and why, and one line says that it is back.
func TestServerIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a")
		said, wire := c.overhear(), c.tap()
		c.run()
		c.pass(30 * time.Second)
		wire.cut(refused)
		c.pass(2 * time.Second)
		wire.cut(nil)
		c.pass(2 * time.Minute)
		require.NoError(t, said.status().Lost)
		require.Zero(t, said.count(lostLine), "it was away for a moment")
		for outage := 1; outage <= 2; outage++ {
			wire.cut(refused)
			c.add(named(podFrom(t, small), 2*outage)[2*outage-2:]...)
			c.pass(30 * time.Minute)
			require.ErrorIs(t, said.status().Lost, syscall.ECONNREFUSED)
			require.Equal(t, outage, said.count(lostLine), "one line, not one for each request")
			require.Equal(t, outage, said.count("connection refused"))
			require.Equal(t, outage-1, said.count(backLine))
			wire.cut(nil)
			c.pass(2 * time.Minute)
			require.NoError(t, said.status().Lost)
			require.Equal(t, outage, said.count(lostLine))
			require.Equal(t, outage, said.count(backLine))
			require.Equal(t, 2*outage, c.bound("small"), c.whyNot())
		}
		c.kill()
	})
}

// A watch of one kind that is refused is as good as lost, also while each list succeeds; likewise lists that are refused from the start.
func TestKindThatIsRefused(t *testing.T) {
	forbidden := func(what string) func(verb, resource string) error {
		return func(verb, resource string) error {
			if what != verb+" "+resource {
				return nil
			}
			return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", nil)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a")
		said, wire := c.overhear(), c.tap()
		c.run()
		c.pass(30 * time.Second)
		wire.cut(forbidden("watch nodes"))
		c.pass(20 * time.Minute)
		require.ErrorContains(t, said.status().Lost, "watch nodes: ")
		require.True(t, apierrors.IsForbidden(said.status().Lost))
		require.Equal(t, 1, said.count(lostLine))
		require.Zero(t, said.count(backLine))
		c.kill()
		wire.cut(forbidden("list pods"))
		said = c.overhear()
		c.run()
		c.pass(20 * time.Minute)
		require.ErrorContains(t, said.status().Lost, "list pods: ")
		require.Equal(t, 1, said.count(lostLine))
		require.Zero(t, said.count("the cluster is read"))
		wire.cut(nil)
		c.pass(2 * time.Minute)
		require.Equal(t, 1, said.count(backLine))
		require.Equal(t, 1, said.count("the cluster is read"))
		c.kill()
	})
}

// An informer may list by a watch, after which it does not list any more.
func TestWatchThatListsEndsTheFailureOfTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, away := &contact{}, errors.New("away")
		fail := func(verb string) {
			c.note(t.Context(), verb, "pods", away)
			time.Sleep(lostAfter)
			c.note(t.Context(), verb, "pods", away)
		}
		lost := func(what string) {
			t.Helper()
			_, why := c.trouble()
			if what == "" {
				require.NoError(t, why)
				return
			}
			require.EqualError(t, why, what+": away")
		}
		fail("list")
		lost("list pods")
		fail("watch")
		lost("list pods") // it has failed for longer
		c.note(t.Context(), "list", "pods", nil)
		lost("watch pods")
		c.note(t.Context(), "list", "pods", away)
		c.note(t.Context(), "watch", "pods", nil)
		lost("")
		time.Sleep(lostAfter)
		c.note(t.Context(), "list", "pods", away)
		lost("")
		ended, end := context.WithCancel(t.Context())
		end()
		time.Sleep(lostAfter)
		c.note(ended, "list", "pods", context.Canceled)
		lost("")
	})
}

// Every pod that waits is counted once, under the reason for which it waits, also if it is not in the ledger.
func TestCountsWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a")
		said := c.overhear()
		waits := func() map[string]int {
			out := map[string]int{}
			for reason, n := range said.status().Waiting {
				if n > 0 {
					out[reason] = n
				}
			}
			return out
		}
		foreign := podFrom(t, "metadata: {name: foreign}\nspec: {schedulerName: other}")
		large := podFrom(t, "metadata: {name: large}\nspec: {containers: [{name: m, resources: {requests: {cpu: '64'}}}]}")
		c.add(append(named(podFrom(t, small), 2), foreign)...)
		c.add(podFrom(t, "metadata: {name: claims}\nspec: {resourceClaims: [{name: gpu, resourceClaimName: gpu}]}"))
		c.add(named(podFrom(t, gangPod), 3)...)
		c.add(named(large, 2)...)
		c.run()
		c.pass(20 * time.Second)
		require.Equal(t, map[string]int{"parked": 2, "unsayable": 1, "gang": 3}, waits())
		require.Contains(t, said.status().Waiting, "unplanned", "a reason that nobody has is counted too")
		for i := range 2 {
			c.delete(named(large, 2)[i].Name)
		}
		c.delete("claims")
		c.pass(5 * time.Second)
		require.Equal(t, map[string]int{"gang": 3}, waits())
		c.addNode("b")
		c.addNode("c")
		c.add(named(podFrom(t, gangPod), 4)[3])
		c.until("the gang is bound", func() bool { return c.bound("gang") == 4 })
		c.pass(5 * time.Second)
		require.Empty(t, waits())
		// A pod that waits in the ledger, and then cannot be said any more.
		c.add(large)
		c.pass(5 * time.Second)
		c.update("large", func(p *corev1.Pod) { p.Labels = map[string]string{GangMinAnnotation: "1"} })
		c.pass(5 * time.Second)
		require.Equal(t, map[string]int{"unsayable": 1}, waits())
		c.kill()
	})
}
