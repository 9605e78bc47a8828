// Package fit judges where pods are: Recount reads pods, nodes and disruption budgets as the API server has them, and
// lists everything that Kubernetes' own rules do not allow. It shares nothing with the scheduler that it judges.
package fit

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// Kind says which rule is broken.
type Kind string

// The kinds of faults. Those that say "at rest" may also come about without a placement: by a departure, or by a change
// of a node's labels, taints or resources.
const (
	// Nowhere: a pod is bound to a node that does not exist.
	Nowhere Kind = "nowhere"
	// Over: the pods of a node request more of a resource than is allocatable; at rest.
	Over Kind = "over"
	// Node: a node does not match the node selector or the required node affinity of a pod on it; at rest.
	Node Kind = "node"
	// Taint: a pod does not tolerate a taint of its node, NoSchedule or NoExecute; at rest.
	Taint Kind = "taint"
	// Cordon: a pod is on a node that is unschedulable; at rest. A node is usually cordoned while pods run on it.
	Cordon Kind = "cordon"
	// Port: two pods have one host port of a node.
	Port Kind = "port"
	// Apart: a pod is in a domain together with one that its required anti-affinity excludes, whichever came first; at
	// rest.
	Apart Kind = "apart"
	// Near: a pod has no neighbour as its required affinity demands, and is not the first of its kind; at rest.
	Near Kind = "near"
	// Skew: a domain has more pods of a spread constraint that says DoNotSchedule than maxSkew allows; at rest.
	Skew Kind = "skew"
	// Gang: some members of a gang are placed, but fewer than its minimum, and others wait; at rest.
	Gang Kind = "gang"
	// Short: as Gang, but none waits. So members were deleted after the start, which is no fault of a scheduler, or the
	// gang was started before there were enough of them.
	Short Kind = "short"
	// Budget: fewer pods of a disruption budget are healthy than its status desires; at rest.
	Budget Kind = "budget"
)

// A pod says by these in which gang it is, and how many members are the least; the minimum may be an annotation or a
// label.
const (
	gangLabel = "kubeorbit.dev/gang"
	gangMin   = "kubeorbit.dev/gang-min"
)

// Fault is one rule that is broken.
type Fault struct {
	// Kind says which rule.
	Kind Kind
	// Subject is the "namespace/name" of a pod, a gang or a budget, or the name of a node.
	Subject string
	// Text says what is wrong.
	Text string
}

// String returns the kind, the subject and the text.
func (f Fault) String() string { return fmt.Sprintf("%s: %s: %s", f.Kind, f.Subject, f.Text) }

// Recount returns all faults of a cluster, ordered by kind, subject and text. Pods that have no node or have ended take no room;
// those that terminate take it until they have ended.
//
// Of a namespace it knows no labels but its name (kubernetes.io/metadata.name), by which namespace selectors are judged.
// It does not judge volumes and resource claims.
func Recount(pods []*corev1.Pod, nodes []*corev1.Node, budgets []*policyv1.PodDisruptionBudget) []Fault {
	w := &world{
		nodes: map[string]*corev1.Node{}, on: map[string][]*corev1.Pod{}, domains: map[string]map[string][]*corev1.Pod{},
		selectors: map[*corev1.PodAffinityTerm]*termSelector{},
	}
	for _, n := range nodes {
		w.nodes[n.Name] = n
	}
	for _, p := range pods {
		if p.Spec.NodeName == "" || ended(p) {
			continue
		}
		if w.nodes[p.Spec.NodeName] == nil {
			w.fail(Nowhere, name(p), "node %q does not exist", p.Spec.NodeName)
			continue
		}
		w.placed = append(w.placed, p)
		w.on[p.Spec.NodeName] = append(w.on[p.Spec.NodeName], p)
	}
	w.rooms()
	w.places()
	w.ports()
	w.apart()
	w.near()
	w.skews()
	w.gangs(pods)
	w.budgets(pods, budgets)
	slices.SortFunc(w.faults, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.Text, b.Text))
	})
	return w.faults
}

// world is a cluster that is judged.
type world struct {
	nodes map[string]*corev1.Node
	// The pods that take room: all, by node, and by domain of the levels that have been asked for.
	placed  []*corev1.Pod
	on      map[string][]*corev1.Pod
	domains map[string]map[string][]*corev1.Pod
	faults  []Fault
	// The selectors of terms that have been read.
	selectors map[*corev1.PodAffinityTerm]*termSelector
}

func (w *world) fail(kind Kind, subject, format string, args ...any) {
	w.faults = append(w.faults, Fault{kind, subject, fmt.Sprintf(format, args...)})
}

// nodeOf returns the node of a placed pod.
func (w *world) nodeOf(p *corev1.Pod) *corev1.Node { return w.nodes[p.Spec.NodeName] }

func name(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }

func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// rooms compares the requests on each node with what is allocatable.
func (w *world) rooms() {
	for _, n := range w.nodes {
		sums := corev1.ResourceList{}
		for _, p := range w.on[n.Name] {
			requests := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{
				UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true,
			})
			for what, amount := range requests {
				sum := sums[what]
				sum.Add(amount)
				sums[what] = sum
			}
		}
		sums[corev1.ResourcePods] = *resource.NewQuantity(int64(len(w.on[n.Name])), resource.DecimalSI)
		for what, sum := range sums {
			if there := n.Status.Allocatable[what]; sum.Sign() > 0 && sum.Cmp(there) > 0 {
				w.fail(Over, n.Name, "%s of %s are requested, and %s are allocatable", sum.String(), what, there.String())
			}
		}
	}
}

// places judges each pod on its node by what it says about nodes.
func (w *world) places() {
	for _, p := range w.placed {
		n := w.nodeOf(p)
		if matches, err := nodeaffinity.GetRequiredNodeAffinity(p).Match(n); err != nil || !matches {
			w.fail(Node, name(p), "node %q does not match its selector and affinity", n.Name)
		}
		for i := range n.Spec.Taints {
			t := &n.Spec.Taints[i]
			if forbids(t) && t.Key != corev1.TaintNodeUnschedulable && !tolerates(p, t) {
				w.fail(Taint, name(p), "node %q has the taint %s", n.Name, t.ToString())
			}
		}
		if unschedulable(n) && !tolerates(p, &cordon) {
			w.fail(Cordon, name(p), "node %q is unschedulable", n.Name)
		}
	}
}

// cordon is the taint that the node controller gives to a node that is unschedulable.
var cordon = corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}

// unschedulable reports whether the node is cordoned, by its spec or by the taint that follows from it.
func unschedulable(n *corev1.Node) bool {
	return n.Spec.Unschedulable || slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == corev1.TaintNodeUnschedulable && forbids(&t)
	})
}

// forbids reports whether a taint forbids placements.
func forbids(t *corev1.Taint) bool {
	return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
}

// tolerates reports whether a pod tolerates a taint.
func tolerates(p *corev1.Pod, t *corev1.Taint) bool {
	for _, o := range p.Spec.Tolerations {
		if o.Effect != "" && o.Effect != t.Effect || o.Key != "" && o.Key != t.Key {
			continue
		}
		if o.Operator == corev1.TolerationOpExists || (o.Operator == "" || o.Operator == corev1.TolerationOpEqual) && o.Value == t.Value {
			return true
		}
	}
	return false
}

// binding is a port that a pod takes of its node.
type binding struct {
	ip, protocol string
	port         int32
}

// bindings returns the host ports of a pod, of the containers that run all the time.
func bindings(p *corev1.Pod) (all []binding) {
	containers := slices.Clone(p.Spec.Containers)
	for _, c := range p.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			containers = append(containers, c)
		}
	}
	for _, c := range containers {
		for _, port := range c.Ports {
			if port.HostPort > 0 {
				all = append(all, binding{cmp.Or(port.HostIP, "0.0.0.0"), cmp.Or(string(port.Protocol), "TCP"), port.HostPort})
			}
		}
	}
	return all
}

// ports finds pods of one node that take the same port.
func (w *world) ports() {
	for node, pods := range w.on {
		for i, p := range pods {
			for _, q := range pods[:i] {
				for _, b := range bindings(p) {
					for _, c := range bindings(q) {
						sameIP := b.ip == c.ip || b.ip == "0.0.0.0" || c.ip == "0.0.0.0"
						if sameIP && b.port == c.port && b.protocol == c.protocol {
							w.fail(Port, name(p), "has %s %s:%d of node %q, as %s does", b.protocol, b.ip, b.port, node, name(q))
						}
					}
				}
			}
		}
	}
}
