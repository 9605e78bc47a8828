//go:build kube

package itest

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/orbitsched/orbit/kubeorbit/fit"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var (
	nodesFlag = flag.Int("nodes", 200, "nodes of the cluster")
	podsFlag  = flag.Int("pods", 2_000, "pods of each scenario, at most")
	onlyFlag  = flag.String("scheduler", "", "the only scheduler to run; empty: all")
)

// row is what a run of a scenario has shown.
type row struct {
	nodes, pods int
	scenario    string
	scheduler   string
	wall, cpu   time.Duration // from the start of the scheduler, less what it takes to start with nothing to do
	unplaced    int
	faults      []fit.Fault
}

func table(rows []row) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "nodes\tpods\tscenario\tscheduler\tpods/s\tms CPU a pod\tunplaced\tfaults\t")
	for _, r := range rows {
		placed := float64(max(1, r.pods-r.unplaced))
		fmt.Fprintf(w, "%d\t%d\t%s\t%s\t%.0f\t%.2f\t%d\t%d\t\n", r.nodes, r.pods, r.scenario, r.scheduler,
			placed/r.wall.Seconds(), 1_000*r.cpu.Seconds()/placed, r.unplaced, len(r.faults))
	}
	w.Flush()
	return text.String()
}

// TestScenarios lets each scheduler bind the pods of each scenario, which wait when it starts. All are bound, and no rule is broken.
func TestScenarios(t *testing.T) {
	c := newCluster(t, *nodesFlag)
	var rows []row
	for _, s := range scenarios {
		for _, who := range contenders {
			if !s.runs(who) {
				continue
			}
			t.Run(s.name+"/"+who.name, func(t *testing.T) {
				r := c.run(t, s, who, *podsFlag)
				rows = append(rows, r)
				assert.Zero(t, r.unplaced, "pods that are not bound")
				assert.Empty(t, r.faults)
			})
		}
	}
	fmt.Fprint(os.Stdout, table(rows))
}

func (c *cluster) run(t *testing.T, s scenario, who contender, n int) row {
	namespace, empty := c.namespace(s.name)
	defer empty()
	if s.prepare != nil {
		s.prepare(c, namespace, n)
	}
	idleWall, idleCPU := c.idle(t, who)
	pods := s.pods(c, namespace, n)
	c.createFor(who, pods)

	scheduler := startChild(t, who, c.kubeconfig)
	bound := c.awaitBound(application(pods[0]), len(pods), limit(len(pods)), scheduler)
	wall := time.Since(scheduler.began)
	r := row{nodes: c.nodes, pods: len(pods), scenario: s.name, scheduler: who.name, unplaced: len(pods) - bound}
	r.cpu, r.wall = scheduler.kill()-idleCPU, wall-idleWall
	if r.unplaced > 0 {
		c.explain(t, namespace)
	}
	r.faults = c.faults()
	return r
}

// createFor makes pods of a scheduler.
func (c *cluster) createFor(who contender, pods []*corev1.Pod) {
	for _, p := range pods {
		p.Spec.SchedulerName = who.pods
	}
	c.create(pods)
}

// idle returns how long a scheduler takes to start and bind one pod.
func (c *cluster) idle(t *testing.T, who contender) (wall, cpu time.Duration) {
	namespace, empty := c.namespace("idle")
	defer empty()
	pods := podsOf(namespace, "idle", 1, func(_ int, p *corev1.Pod) { request(p, 0) })
	c.createFor(who, pods)
	scheduler := startChild(t, who, c.kubeconfig)
	require.Equal(t, 1, c.awaitBound(application(pods[0]), 1, time.Minute, scheduler), "%s binds nothing", who.name)
	return time.Since(scheduler.began), scheduler.kill()
}

// limit returns how long the tests wait until a number of pods is bound.
func limit(pods int) time.Duration { return time.Minute + time.Duration(pods)*100*time.Millisecond }

// runs reports whether a scheduler is to run the scenario. kube-scheduler with gangs, which are an alpha feature, runs only those.
func (s scenario) runs(who contender) bool {
	return (!s.gangs || who.gangs) && (s.gangs || who.name != "kube-scheduler, gangs") && (*onlyFlag == "" || *onlyFlag == who.name)
}

// TestKilled kills each scheduler in the middle of its work and starts it again. All pods are bound, and no rule is broken.
func TestKilled(t *testing.T) {
	c := newCluster(t, *nodesFlag)
	for _, s := range scenarios {
		for _, who := range contenders {
			if !s.runs(who) {
				continue
			}
			t.Run(s.name+"/"+who.name, func(t *testing.T) {
				namespace, empty := c.namespace(s.name)
				defer empty()
				if s.prepare != nil {
					s.prepare(c, namespace, *podsFlag)
				}
				pods := s.pods(c, namespace, *podsFlag)
				c.createFor(who, pods)
				for _, part := range []int{len(pods) / 4, len(pods) / 2} {
					first := startChild(t, who, c.kubeconfig)
					killedAt := c.awaitBound(application(pods[0]), part, limit(part), first)
					first.kill()
					t.Logf("killed after %d of %d pods", killedAt, len(pods))
				}
				last := startChild(t, who, c.kubeconfig)
				assert.Equal(t, len(pods), c.awaitBound(application(pods[0]), len(pods), limit(len(pods)), last), "bound pods")
				assert.Empty(t, c.faults())
			})
		}
	}
}

// TestBeside lets kube-scheduler and orbit bind pods at once on the same nodes, which the pods of both together fill to four fifths. All
// are bound. Either sees what the other has bound only afterwards, and the API server counts no room, so a node may be overfilled; no
// other rule is broken.
func TestBeside(t *testing.T) {
	c := newCluster(t, *nodesFlag)
	namespace, empty := c.namespace("beside")
	defer empty()
	pair := []contender{contenders[0], contenders[2]}
	each := c.nodes * nodeCores * 4 / 5 / len(pair)
	for _, who := range pair {
		c.createFor(who, podsOf(namespace, who.name, each, func(_ int, p *corev1.Pod) { request(p, 1_000) }))
	}
	var all []*child
	for _, who := range pair {
		all = append(all, startChild(t, who, c.kubeconfig))
	}
	for _, who := range pair {
		assert.Equal(t, each, c.awaitBound(namespace+"/"+who.name, each, limit(each*len(all)), all...), who.name)
	}
	faults := c.faults()
	t.Logf("faults: %v", faults)
	for _, f := range faults {
		assert.Equal(t, fit.Over, f.Kind, "%v", f)
	}
}

// TestGangsWhenRoomIsShort submits half as many gangs again as there is room for. The nodes are filled, and each gang is bound whole or
// not at all; so they are again after some gangs have gone.
func TestGangsWhenRoomIsShort(t *testing.T) {
	c := newCluster(t, 20)
	for _, who := range contenders {
		if !who.gangs || (*onlyFlag != "" && *onlyFlag != who.name) {
			continue
		}
		t.Run(who.name, func(t *testing.T) {
			namespace, empty := c.namespace("short")
			defer empty()
			const perNode = nodeCores / largeCores
			room := c.nodes * perNode
			makePodGroups(c, namespace, room*3/2)
			pods := podsOf(namespace, "gang", room*3/2, func(i int, p *corev1.Pod) {
				p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new(gangName(i / gangSize))}
				request(p, largeCores*1_000)
			})
			c.createFor(who, pods)
			scheduler := startChild(t, who, c.kubeconfig)
			assert.Equal(t, room, c.awaitBound(application(pods[0]), room, limit(room), scheduler), "bound pods")
			whole := c.wholeGangs(t, namespace)
			c.each(len(pods), func(ctx context.Context, i int) error {
				if !slices.Contains(whole[:len(whole)/4], *pods[i].Spec.SchedulingGroup.PodGroupName) {
					return nil
				}
				return c.client.CoreV1().Pods(namespace).Delete(ctx, pods[i].Name, *metav1.NewDeleteOptions(0))
			})
			members := map[string]int{} // as the API server has them, because the informer may not have seen yet that the gangs have gone
			c.await(limit(room), func() bool {
				members = c.boundMembers(t, namespace)
				return sum(members) == room
			}, scheduler)
			assert.Equal(t, room, sum(members), "bound pods after some gangs have gone")
			c.wholeGangs(t, namespace)
			assert.Empty(t, c.faults())
		})
	}
}

// wholeGangs returns the gangs that are bound. It fails the test for each bound gang that lacks a member.
func (c *cluster) wholeGangs(t *testing.T, namespace string) []string {
	members := c.boundMembers(t, namespace)
	for name, bound := range members {
		assert.Equal(t, gangSize, bound, "members of %s that are bound", name)
	}
	return slices.Sorted(maps.Keys(members))
}

// boundMembers returns how many members of each gang are bound, without those that have none.
func (c *cluster) boundMembers(t *testing.T, namespace string) map[string]int {
	pods, err := c.client.CoreV1().Pods(namespace).List(context.Background(), metav1.ListOptions{})
	require.NoError(t, err)
	bound := map[string]int{}
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Spec.NodeName != "" && p.Spec.SchedulingGroup != nil {
			bound[*p.Spec.SchedulingGroup.PodGroupName]++
		}
	}
	return bound
}

func sum(of map[string]int) (all int) {
	for _, n := range of {
		all += n
	}
	return all
}

// explain logs what the scheduler says about some of the pods that are not bound.
func (c *cluster) explain(t *testing.T, namespace string) {
	pods, err := c.client.CoreV1().Pods(namespace).List(context.Background(), metav1.ListOptions{FieldSelector: "spec.nodeName="})
	require.NoError(t, err)
	for i := range min(3, len(pods.Items)) {
		t.Logf("%s: %v", pods.Items[i].Name, pods.Items[i].Status.Conditions)
	}
}
