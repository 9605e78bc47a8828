package kubeorbit

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A bind that comes late does not bind the pod that was made again under the name meanwhile.
func TestLateBindOfAPodThatWasMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a zone=a", "b zone=b")
		c.set(func(verb, _ string, after bool) error {
			if verb == "bind" && !after {
				time.Sleep(3 * time.Second)
			}
			return nil
		})
		p := podFrom(t, small)
		p.Spec.NodeSelector = map[string]string{"zone": "a"}
		c.add(p)
		c.run()
		c.pass(time.Second)
		c.delete("small")
		p.Spec.NodeSelector = map[string]string{"zone": "b"}
		c.add(p)
		c.until("the new pod is bound", func() bool { return c.bound("small") == 1 })
		c.pass(10 * time.Second)
		c.check()
		c.kill()
	})
}

// A bind that has failed is not tried again if the pod says that this is of no use.
func TestBindsThatAreNotTriedAgain(t *testing.T) {
	for name, test := range map[string]struct {
		meanwhile func(c *cluster) // while the first bind is under way
		lost      bool             // the bind succeeds, but its answer is lost
		requests  int
	}{
		"it is bound": {meanwhile: func(*cluster) {}, lost: true, requests: 1},
		"it is gone":  {meanwhile: func(c *cluster) { c.delete("small") }, requests: 1},
		"another pod has its name, and waits": {meanwhile: func(c *cluster) {
			c.delete("small")
			other := podFrom(c.t, small)
			other.Spec.NodeSelector = map[string]string{"zone": "none"}
			c.add(other)
		}, requests: 1},
		"it waits, so that a try is of use": {meanwhile: func(*cluster) {}, requests: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, requests := newCluster(t, "a"), 0
				c.set(func(verb, _ string, after bool) error {
					if verb != "bind" {
						return nil
					}
					c.mu.Lock()
					requests += int(btoi(!after))
					first := requests == 1
					c.mu.Unlock()
					if first && after == test.lost {
						time.Sleep(time.Second)
						return errors.New("refused")
					}
					return nil
				})
				c.add(podFrom(t, small))
				c.run()
				c.pass(500 * time.Millisecond)
				test.meanwhile(c)
				c.pass(time.Minute)
				c.check()
				c.kill()
				require.Equal(t, test.requests, requests)
			})
		})
	}
}
