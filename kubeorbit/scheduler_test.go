package kubeorbit

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// nodes returns nodes n-0, n-1 and so on in three zones.
func zoned(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("n-%d zone=z%d", i, i%3))
	}
	return out
}

const spreadWeb = `
metadata: {name: web, labels: {app: web}}
spec:
  topologySpreadConstraints:
  - {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}
`

func TestPodsAreBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, zoned(6)...)
		c.add(named(podFrom(t, spreadWeb), 30)...)
		c.run()
		c.until("all pods are bound", func() bool { return c.bound("web") == 30 })
		c.pass(5 * time.Second)
		c.check()
		c.add(named(podFrom(t, "metadata: {name: late}"), 10)...)
		c.until("the later pods are bound", func() bool { return c.bound("late") == 10 })
		c.pass(5 * time.Second)
		c.check()
		c.stops = time.Minute // while a pod terminates, it takes room and counts in no spread
		c.delete("web-0")
		c.pass(time.Second)
		c.same()
		c.kill()
	})
}

// Sets of pods that stay together share nodes, as many as fit.
func TestManySetsStayTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, zoned(6)...)
		for i := range 40 {
			p := podFrom(t, fmt.Sprintf("metadata: {name: set-%d, labels: {set: s%d}}\nspec: {affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone, labelSelector: {matchLabels: {set: s%d}}}]}}}", i, i, i))
			c.add(named(p, 4)...)
		}
		c.run()
		c.until("all sets are bound", func() bool { return c.bound("set") == 160 })
		c.pass(5 * time.Second)
		c.check()
		c.kill()
	})
}

func TestForeignPodsAreLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a")
		other := podFrom(t, "metadata: {name: other}\nspec: {schedulerName: default-scheduler}")
		gated := podFrom(t, "metadata: {name: gated}\nspec: {schedulingGates: [{name: later}]}")
		c.add(other, gated)
		c.run()
		c.pass(10 * time.Second)
		require.Equal(t, map[string]string{"other": "", "gated": ""}, c.on(""))
		ungated := c.pod("gated")
		ungated.Spec.SchedulingGates = nil
		require.NoError(t, c.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), ungated, "default"))
		c.until("the pod without gates is bound", func() bool { return c.bound("gated") == 1 })
		c.kill()
	})
}

// A capsule is found by the namespace and the name of its pod. Of several pods that have had the name it is the last.
func TestFind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a")
		find := func(name string) orbit.CapsuleID {
			state, err := c.ledger.Snapshot(t.Context())
			require.NoError(t, err)
			return Find(state, name)
		}
		c.add(podFrom(t, big), podFrom(t, "metadata: {name: bigger}\nspec: {containers: [{name: m, resources: {requests: {cpu: '0'}}}]}"))
		c.run()
		for range 3 { // made again under its name
			c.until("it is bound", func() bool { return c.bound("big") == 2 })
			c.pass(3 * time.Second)
			require.Equal(t, capsuleOf(c.pod("big")), find("default/big"))
			c.delete("big")
			c.pass(5 * time.Second)
			c.add(podFrom(t, big))
		}
		for _, name := range []string{"", "big", "default", "default/", "default/bi", "other/big", "default/big/", "default/big/uid-0"} {
			require.Empty(t, find(name), name)
		}
		c.kill()
	})
}
