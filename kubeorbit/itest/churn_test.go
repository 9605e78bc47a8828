//go:build kube

package itest

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/orbitsched/orbit/kubeorbit/fit"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var (
	seedFlag  = flag.Uint64("seed", 1, "seed of the churn")
	stepsFlag = flag.Int("steps", 200, "steps of the churn")
)

// churn is what TestChurn does to a cluster.
type churn struct {
	*cluster
	who       contender
	namespace string
	random    *rand.Rand
	made      int
	alive     []string // the names of the pods that are not deleted
	cordoned  map[string]bool
}

// TestChurn makes and deletes pods, cordons nodes, removes them and brings them back under their names, and kills the scheduler now and
// then. In the end all pods are bound, and no rule is broken.
func TestChurn(t *testing.T) {
	c := newCluster(t, 40)
	for _, who := range []contender{contenders[0], contenders[2]} {
		if *onlyFlag != "" && *onlyFlag != who.name {
			continue
		}
		t.Run(who.name, func(t *testing.T) {
			namespace, empty := c.namespace("churn")
			defer empty()
			r := &churn{cluster: c, who: who, namespace: namespace, random: rand.New(rand.NewPCG(*seedFlag, 0)), cordoned: map[string]bool{}}
			scheduler := startChild(t, who, c.kubeconfig)
			for step := range *stepsFlag {
				if step%50 == 49 {
					scheduler.kill()
					scheduler = startChild(t, who, c.kubeconfig)
				}
				r.step()
			}
			for name := range r.cordoned {
				r.cordon(name, false)
			}
			assert.Equal(t, len(r.alive), c.awaitBound(namespace+"/churn", len(r.alive), limit(r.made), scheduler), "bound pods")
			for _, f := range c.faults() {
				// Pods that go leave the others uneven or alone; no rule of Kubernetes repairs that.
				if f.Kind != fit.Skew && f.Kind != fit.Near {
					t.Error(f)
				}
			}
		})
	}
}

func (r *churn) step() {
	name := node(r.random.IntN(r.nodes)).Name
	switch p := r.random.IntN(20); {
	case p < 10 && len(r.alive) < 20*r.nodes:
		r.add(8)
	case p < 16:
		for range min(5, len(r.alive)) {
			r.remove(r.random.IntN(len(r.alive)))
		}
	case p < 18:
		r.cordon(name, !r.cordoned[name])
	default:
		r.replace(name)
	}
}

// add makes pods of one kind.
func (r *churn) add(n int) {
	kind, set, size := r.random.IntN(6), fmt.Sprint("set-", r.made), int64(100*(1+r.random.IntN(10)))
	pods := podsOf(r.namespace, "churn", n, func(i int, p *corev1.Pod) {
		p.Name, p.Labels["set"] = fmt.Sprint("pod-", r.made+i), set
		request(p, size)
		terms := []corev1.PodAffinityTerm{{TopologyKey: corev1.LabelHostname, LabelSelector: same(p, "set")}}
		switch kind {
		case 0:
			p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}
		case 1:
			terms[0].TopologyKey = corev1.LabelTopologyZone
			p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}
		case 2:
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
				MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: same(p, "set"),
			}}
		case 3:
			port := int32(8_000 + r.made)
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: port, HostPort: port}}
		case 4:
			p.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: zoneOf[r.random.IntN(len(zoneOf))]}
		}
	})
	r.createFor(r.who, pods)
	r.made += n
	for _, p := range pods {
		r.alive = append(r.alive, p.Name)
	}
}

// remove deletes a pod: the kubelet lets it stop, if it is bound.
func (r *churn) remove(i int) {
	require.NoError(r.t, r.client.CoreV1().Pods(r.namespace).Delete(context.Background(), r.alive[i], metav1.DeleteOptions{}))
	r.forget(i)
}

func (r *churn) forget(i int) {
	r.alive[i] = r.alive[len(r.alive)-1]
	r.alive = r.alive[:len(r.alive)-1]
}

func (r *churn) cordon(name string, on bool) {
	patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, on)
	_, err := r.client.CoreV1().Nodes().Patch(context.Background(), name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	require.NoError(r.t, err)
	r.cordoned[name] = on
}

// replace removes a node and what is bound to it, as the garbage collector of pods does, and makes the node again.
func (r *churn) replace(name string) {
	ctx := context.Background()
	require.NoError(r.t, r.client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}))
	r.collect(name)
	var i int
	_, err := fmt.Sscanf(name, "node-%d", &i)
	require.NoError(r.t, err)
	_, err = r.client.CoreV1().Nodes().Create(ctx, node(i), metav1.CreateOptions{})
	require.NoError(r.t, err)
	delete(r.cordoned, name)
}

func (r *churn) collect(name string) {
	ctx := context.Background()
	pods, err := r.client.CoreV1().Pods(r.namespace).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + name})
	require.NoError(r.t, err)
	for i := range pods.Items {
		p := &pods.Items[i]
		if err := r.client.CoreV1().Pods(r.namespace).Delete(ctx, p.Name, *metav1.NewDeleteOptions(0)); !errors.IsNotFound(err) {
			require.NoError(r.t, err)
		}
		for j, alive := range r.alive {
			if alive == p.Name {
				r.forget(j)
				break
			}
		}
	}
}
