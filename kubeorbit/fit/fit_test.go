package fit

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// cluster is what is judged.
type cluster struct {
	Pods    []*corev1.Pod
	Nodes   []*corev1.Node
	Budgets []*policyv1.PodDisruptionBudget
}

// right is a cluster without a fault, in which every rule has something to judge.
const right = `
nodes:
- {metadata: {name: a, labels: {zone: a}}, status: {allocatable: {cpu: 1, pods: 4, nvidia.com/gpu: 1}}}
- metadata: {name: b, labels: {zone: b, disk: ssd}}
  spec: {unschedulable: true, taints: [{key: k, value: v, effect: NoSchedule}, {key: soft, effect: PreferNoSchedule}]}
  status: {allocatable: {cpu: 2, pods: 4}}
pods:
- metadata: {name: web-a, namespace: n1, labels: {app: web}}
  spec:
    nodeName: a
    containers: [{name: c, resources: {requests: {cpu: 600m, nvidia.com/gpu: 1}}, ports: [{hostPort: 80, containerPort: 80}]}]
    affinity:
      podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone, labelSelector: {matchLabels: {app: web}}}]}
    topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}]
  status: {conditions: [{type: Ready, status: "True"}]}
- metadata: {name: web-b, namespace: n1, labels: {app: web}}
  spec:
    nodeName: b
    nodeSelector: {disk: ssd}
    tolerations: [{key: k, operator: Exists}, {key: node.kubernetes.io/unschedulable, operator: Exists}]
    containers: [{name: c, resources: {requests: {cpu: 600m}}, ports: [{hostPort: 80, containerPort: 80}]}]
- metadata: {name: near-a, namespace: n1, labels: {app: near, kubeorbit.dev/gang: g, kubeorbit.dev/gang-min: "2"}}
  spec:
    nodeName: a
    containers: [{name: c, resources: {requests: {cpu: 400m}}, ports: [{hostPort: 80, protocol: UDP, containerPort: 80}]}]
    affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone, labelSelector: {matchLabels: {app: web}}}]}}
- metadata: {name: first, namespace: n1, labels: {app: first, kubeorbit.dev/gang: g}, annotations: {kubeorbit.dev/gang-min: "2"}}
  spec:
    nodeName: a
    affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone, labelSelector: {matchLabels: {app: first}}}]}}
- {metadata: {name: done, namespace: n1, labels: {app: web}}, spec: {nodeName: a, containers: [{name: c, resources: {requests: {cpu: 9}}}]}, status: {phase: Succeeded}}
- {metadata: {name: waits, namespace: n1, labels: {app: web}}, spec: {containers: [{name: c, resources: {requests: {cpu: 9}}}]}}
- {metadata: {name: elsewhere, namespace: n2, labels: {app: web}}, spec: {nodeName: a}}
budgets:
- {metadata: {name: web, namespace: n1}, spec: {selector: {matchLabels: {app: web}}}, status: {expectedPods: 2, desiredHealthy: 1}}
`

func (c *cluster) pod(name string) *corev1.Pod {
	for _, p := range c.Pods {
		if p.Name == name {
			return p
		}
	}
	return nil
}

func read(t *testing.T, text string) *cluster {
	c := &cluster{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), c))
	return c
}

func TestRight(t *testing.T) {
	c := read(t, right)
	assert.Empty(t, Recount(c.Pods, c.Nodes, c.Budgets))
	assert.Empty(t, Recount(nil, nil, nil))
}

// TestFaults breaks the cluster in one way at a time.
func TestFaults(t *testing.T) {
	zones := func(c *cluster, name string) { // moves a pod into the other zone, to a node of its own
		c.Nodes = append(c.Nodes, c.Nodes[1].DeepCopy())
		c.Nodes[2].Name, c.Nodes[2].Spec = "c", corev1.NodeSpec{}
		c.pod(name).Spec.NodeName = "c"
	}
	for _, row := range []struct {
		name   string
		breaks func(c *cluster)
		want   string // without the text
		text   string
	}{
		{"a node that does not exist", func(c *cluster) { c.pod("first").Spec.NodeName = "x" }, "nowhere: n1/first", `node "x" does not exist`},
		{"too much CPU", func(c *cluster) {
			c.Nodes[0].Status.Allocatable["cpu"] = c.Nodes[0].Status.Allocatable["nvidia.com/gpu"]
			c.pod("first").Spec.Containers = c.pod("web-b").Spec.Containers
		}, "over: a, port: n1/first", "1600m of cpu"},
		{"too many pods", func(c *cluster) { delete(c.Nodes[0].Status.Allocatable, "pods") }, "over: a", "4 of pods"},
		{"an extended resource", func(c *cluster) { delete(c.Nodes[0].Status.Allocatable, "nvidia.com/gpu") }, "over: a", "1 of nvidia.com/gpu are requested, and 0"},
		{"ephemeral storage", func(c *cluster) {
			c.pod("first").Spec.Overhead = corev1.ResourceList{"ephemeral-storage": c.Nodes[0].Status.Allocatable["cpu"]}
		}, "over: a", "ephemeral-storage"},
		{"a node selector", func(c *cluster) { delete(c.Nodes[1].Labels, "disk") }, "node: n1/web-b", `node "b" does not match`},
		{"a taint", func(c *cluster) { c.Nodes[1].Spec.Taints[0].Key = "other" }, "taint: n1/web-b", "other=v:NoSchedule"},
		{"a toleration of another value", func(c *cluster) { c.pod("web-b").Spec.Tolerations[0].Operator = "" }, "taint: n1/web-b", "k=v:NoSchedule"},
		{"a toleration of another effect", func(c *cluster) { c.pod("web-b").Spec.Tolerations[0].Effect = "NoExecute" }, "taint: n1/web-b", "k=v:NoSchedule"},
		{"a node that is unschedulable", func(c *cluster) { c.Nodes[0].Spec.Unschedulable = true },
			"cordon: n1/first, cordon: n1/near-a, cordon: n1/web-a, cordon: n2/elsewhere", "unschedulable"},
		{"the taint of a node that is unschedulable", func(c *cluster) {
			c.Nodes[0].Spec.Taints = []corev1.Taint{{Key: "node.kubernetes.io/unschedulable", Effect: "NoSchedule"}}
		}, "cordon: n1/first, cordon: n1/near-a, cordon: n1/web-a, cordon: n2/elsewhere", "unschedulable"},
		{"a host port", func(c *cluster) { c.pod("near-a").Spec.Containers[0].Ports[0].Protocol = "TCP" }, "port: n1/near-a", "has TCP 0.0.0.0:80"},
		{"a host port on one address", func(c *cluster) {
			c.pod("near-a").Spec.Containers[0].Ports[0].Protocol, c.pod("near-a").Spec.Containers[0].Ports[0].HostIP = "", "10.0.0.1"
		}, "port: n1/near-a", "has TCP 10.0.0.1:80"},
		{"anti-affinity", func(c *cluster) { c.Nodes[0].Labels["zone"] = "b" }, "apart: n1/web-a", "n1/web-b is in the same zone"},
		{"anti-affinity of who came first", func(c *cluster) { c.pod("first").Labels["app"] = "web" }, "apart: n1/web-a, near: n1/first", "n1/first is in the same zone"},
		{"affinity", func(c *cluster) { zones(c, "near-a"); c.pod("web-b").Labels["app"] = "x" }, "near: n1/near-a", "no neighbour by zone"},
		{"affinity without the label", func(c *cluster) { zones(c, "near-a"); delete(c.Nodes[2].Labels, "zone") }, "near: n1/near-a", "no neighbour by zone"},
		{"two that are first", func(c *cluster) {
			second := c.pod("first").DeepCopy()
			second.Name = "second"
			c.Pods = append(c.Pods, second)
			zones(c, "second")
		}, "near: n1/first, near: n1/second", "no neighbour by zone"},
		{"skew", func(c *cluster) {
			c.pod("near-a").Labels["app"], c.pod("web-a").Spec.Affinity = "web", nil
			c.pod("web-b").Labels["app"] = "x"
		}, "skew: n1/web-a", `zone "a" has 2 of its kind, and another has 0; maxSkew is 1`},
		{"too few domains", func(c *cluster) {
			c.pod("near-a").Labels["app"], c.pod("web-a").Spec.Affinity = "web", nil
			c.pod("web-a").Spec.TopologySpreadConstraints[0].MinDomains = new(int32(3))
		}, "skew: n1/web-a", "another has 0"},
		{"a gang in part", func(c *cluster) { c.pod("near-a").Spec.NodeName = "" }, "gang: n1/g", "1 members are placed, 0 have ended and 1 wait; the least is 2"},
		{"a gang of which a member was deleted", func(c *cluster) {
			c.Pods = slices.DeleteFunc(c.Pods, func(p *corev1.Pod) bool { return p.Name == "near-a" })
		}, "short: n1/g", "1 members are placed, 0 have ended and 0 wait; the least is 2"},
		{"a budget of which a pod terminates", func(c *cluster) { c.pod("web-a").DeletionTimestamp = new(metav1.Now()) }, "budget: n1/web", "0 pods"},
		{"a pod that terminates takes room", func(c *cluster) {
			delete(c.Nodes[0].Status.Allocatable, "nvidia.com/gpu")
			c.pod("web-a").DeletionTimestamp, c.Budgets = new(metav1.Now()), nil
		}, "over: a", "1 of nvidia.com/gpu"},
		{"a budget", func(c *cluster) { c.pod("web-a").Status.Conditions = nil }, "budget: n1/web", "0 pods are healthy, and 1 are desired"},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := read(t, right)
			row.breaks(c)
			var names, texts []string
			for _, f := range Recount(c.Pods, c.Nodes, c.Budgets) {
				names = append(names, string(f.Kind)+": "+f.Subject)
				texts = append(texts, f.String())
			}
			assert.Equal(t, row.want, strings.Join(names, ", "), texts)
			assert.Contains(t, strings.Join(texts, "\n"), row.text)
		})
	}
}

// TestNoFaults changes the cluster in ways that break nothing.
func TestNoFaults(t *testing.T) {
	for name, change := range map[string]func(c *cluster){
		"a gang of which members have ended": func(c *cluster) { c.pod("near-a").Status.Phase = corev1.PodSucceeded },
		"a gang that waits":                  func(c *cluster) { c.pod("near-a").Spec.NodeName, c.pod("first").Spec.NodeName = "", "" },
		"a taint that keeps nothing off":     func(c *cluster) { c.Nodes[0].Spec.Taints = []corev1.Taint{{Key: "x", Effect: "PreferNoSchedule"}} },
		"anti-affinity on nodes without the label": func(c *cluster) {
			c.pod("web-a").Spec.TopologySpreadConstraints = nil
			c.pod("near-a").Spec.Affinity, c.pod("first").Spec.Affinity = nil, nil
			delete(c.Nodes[0].Labels, "zone")
		},
		"skew of soft constraints": func(c *cluster) {
			c.pod("web-a").Spec.Affinity = nil
			c.pod("near-a").Labels["app"] = "web"
			c.pod("web-b").Labels["app"] = "x"
			c.pod("web-a").Spec.TopologySpreadConstraints[0].WhenUnsatisfiable = "ScheduleAnyway"
		},
		"a first pod that others of its kind have left": func(c *cluster) { c.pod("first").Spec.NodeName = "a" },
		"skew by a pod that terminates": func(c *cluster) {
			c.pod("near-a").Labels["app"], c.pod("near-a").DeletionTimestamp = "web", new(metav1.Now())
			c.pod("web-a").Spec.Affinity, c.pod("web-b").Labels["app"] = nil, "x"
		},
		"a host port of a pod that has ended": func(c *cluster) { c.pod("done").Spec.Containers[0].Ports = c.pod("web-a").Spec.Containers[0].Ports },
	} {
		t.Run(name, func(t *testing.T) {
			c := read(t, right)
			change(c)
			assert.Empty(t, Recount(c.Pods, c.Nodes, c.Budgets))
		})
	}
}
