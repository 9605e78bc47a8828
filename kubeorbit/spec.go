package kubeorbit

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Cluster is what the spec of a pod depends on beside the pod.
type Cluster interface {
	// Groups returns the names of the registered selections, of all pods and disruption budgets, that select the pod;
	// sorted.
	Groups(pod *corev1.Pod) []string
	// Claim returns a claim of volume and the volume to which it is bound. The claim is nil if it does not exist, the
	// volume if the claim is not bound.
	Claim(namespace, name string) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume)
}

// Unsayable is the error about a field that orbit cannot say. Such a pod is left to other schedulers.
type Unsayable struct {
	// Field is the path of the field, as in "spec.resourceClaims".
	Field string
	// Why is the reason.
	Why string
}

// Error returns the field and the reason.
func (e *Unsayable) Error() string { return e.Field + ": " + e.Why }

// GangLabel is the label that names the gang of a pod, in the namespace of the pod.
const GangLabel = "kubeorbit.dev/gang"

// pointWeight is what a point of a preferred term weighs, in the units of score.Spread, where each capsule that is on a
// node adds 5: as much as 110 capsules, which is how many a kubelet takes by default. So a preference outweighs any
// load, and the weights from 1 to 100 decide between preferences. It is so in kube-scheduler too: it scales the
// preferences of a pod so that the best node has 200 points, whatever their weights are, and the emptiest node has 200
// at most. A soft spread has the weight of one point for each pod.
const pointWeight = 5 * 110

// builder builds the spec of a pod.
type builder struct {
	pod  *corev1.Pod
	in   Cluster
	spec *orbit.Spec
	// The groups of the pod because of its ports and claims.
	groups []string
	// The first field that cannot be said.
	lacks *Unsayable
}

// SpecOf returns what a pod asks for, in the words of orbit. If there is a field that orbit cannot say, the error is an
// *Unsayable that names the first. The spec says the rest then: do not place a pod with it, but adopt with it one that
// runs already, so that what it takes is counted.
//
// In some cases the spec says something else than kube-scheduler does:
//
//   - Topology spread counts the pods on all nodes of a domain, also on nodes that the pod's node affinity or tolerations
//     exclude. With nodeAffinityPolicy Ignore, a domain counts even if its nodes have no label of another constraint.
//   - Of a group that is required by several levels, the first pod may be placed where one level has no member, though a
//     member is on a node without the label of that level.
//   - A node that is unschedulable has its taint at once, also for nodeTaintsPolicy Honor.
//   - A pod that says its operating system is kept off nodes that say another, where the kubelet would refuse it.
//   - The limits of attachable volumes are left out, and so are the features that nodes declare.
//   - Preferred terms count from the side of the new pod only, and images that a node has do not count.
//
// A spec follows the pod and the cluster: call SpecOf again when the labels of the pod, its resources, its claims or its
// groups change.
func SpecOf(pod *corev1.Pod, in Cluster) (*orbit.Spec, error) {
	b := &builder{pod: pod, in: in, spec: &orbit.Spec{Module: moduleOf(pod), Class: classOf(pod), Ends: true}}
	if pod.Spec.Priority != nil {
		b.spec.Priority = *pod.Spec.Priority
	}
	if seconds := pod.Spec.ActiveDeadlineSeconds; seconds != nil && *seconds > 0 && *seconds < int64(math.MaxInt64/time.Second) {
		b.spec.RunsAtMost = time.Duration(*seconds) * time.Second
	}
	if len(pod.Spec.ResourceClaims) > 0 {
		b.unsayable("spec.resourceClaims", "dynamic resource allocation is not supported")
	}
	b.resources()
	b.nodes()
	b.tolerations()
	b.ports()
	b.affinity()
	b.antiAffinity()
	b.spread()
	b.volumes()
	b.join()
	b.limit()
	if b.lacks != nil {
		return b.spec, b.lacks
	}
	return b.spec, nil
}

// unsayable notes a field that cannot be said, unless there is one already.
func (b *builder) unsayable(field, format string, args ...any) {
	if b.lacks == nil {
		b.lacks = &Unsayable{field, fmt.Sprintf(format, args...)}
	}
}

// moduleOf returns "kind/namespace/name" of the pod's controller; empty: it has none.
func moduleOf(pod *corev1.Pod) string {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return ""
	}
	return owner.Kind + "/" + pod.Namespace + "/" + owner.Name
}

// classOf returns the class of the pod. A pod that never preempts has a class of its own, so that an engine can be told
// not to preempt for it.
func classOf(pod *corev1.Pod) orbit.AppClass {
	if gangName(pod) != "" {
		return orbit.GangClass
	}
	return alone(pod)
}

// preemptsNever reports whether nothing is evicted for the pod.
func preemptsNever(pod *corev1.Pod) bool {
	policy := pod.Spec.PreemptionPolicy
	return policy != nil && *policy == corev1.PreemptNever
}

// alone returns the class of a pod that is in no gang.
func alone(pod *corev1.Pod) orbit.AppClass {
	if preemptsNever(pod) {
		return orbit.BestEffort
	}
	return orbit.LatencySensitive
}

// resources says what the pod takes: the requests of its containers as kube-scheduler adds them up, also while it is
// resized in place, and one slot.
func (b *builder) resources() {
	requests := resourcehelper.PodRequests(b.pod, resourcehelper.PodResourcesOptions{
		UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true,
	})
	delete(requests, corev1.ResourcePods)
	main, extras, lacks := amounts("spec.containers.resources", requests)
	if lacks != nil {
		b.unsayable(lacks.Field, "%s", lacks.Why)
	}
	main[orbit.Slots] = 1
	b.spec.Envelope.Reservation, b.spec.Extras = main, extras
}

// tolerations says which taints the pod tolerates.
func (b *builder) tolerations() {
	for _, t := range b.pod.Spec.Tolerations {
		if op := t.Operator; op != "" && op != corev1.TolerationOpEqual && op != corev1.TolerationOpExists {
			b.unsayable("spec.tolerations.operator", "orbit compares no taints by %s", op)
			continue
		}
		out := orbit.Toleration{Key: t.Key, Op: string(t.Operator), Value: t.Value, Effect: string(t.Effect)}
		if t.TolerationSeconds != nil && t.Effect == corev1.TaintEffectNoExecute {
			out.For = toleratesFor(*t.TolerationSeconds)
		}
		b.spec.Tolerate = append(b.spec.Tolerate, out)
	}
	if n := len(b.spec.Tolerate); n > mostTaints {
		b.unsayable("spec.tolerations", "there are %d, and there can be %d", n, mostTaints)
		b.spec.Tolerate = b.spec.Tolerate[:mostTaints]
	}
}

// toleratesFor returns for how long a taint is tolerated. No time at all is a nanosecond, because 0 is for ever in orbit.
// And more than 292 years is for ever, because a duration holds no more.
func toleratesFor(seconds int64) time.Duration {
	switch {
	case seconds <= 0:
		return time.Nanosecond
	case seconds > int64(math.MaxInt64/time.Second):
		return 0
	}
	return time.Duration(seconds) * time.Second
}

// anyIP is the address that stands for all addresses of a node.
const anyIP = "0.0.0.0"

// ports says that no two pods have one port of a node. All pods with the port are in one group; one that takes it on all
// addresses is apart from that group, and one that takes it on one address is apart from those on the same address.
func (b *builder) ports() {
	for _, c := range b.pod.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			b.portsOf(&c)
		}
	}
	for i := range b.pod.Spec.Containers {
		b.portsOf(&b.pod.Spec.Containers[i])
	}
}

func (b *builder) portsOf(c *corev1.Container) {
	for _, p := range c.Ports {
		if p.HostPort <= 0 {
			continue
		}
		protocol := p.Protocol
		if protocol == "" {
			protocol = corev1.ProtocolTCP
		}
		group := fmt.Sprintf("port/%s/%d", protocol, p.HostPort)
		b.groups = append(b.groups, group)
		if p.HostIP != "" && p.HostIP != anyIP {
			group += "/" + p.HostIP
			b.groups = append(b.groups, group)
		}
		b.apart(orbit.Apart{Group: group, Level: orbit.NodeKey})
	}
}

// apart adds a rule Apart, unless it is there already.
func (b *builder) apart(a orbit.Apart) {
	if !slices.Contains(b.spec.Apart, a) {
		b.spec.Apart = append(b.spec.Apart, a)
	}
}

// affinity says near which pods the pod has to be, and near which it would rather be.
//
// The level is the label that the term names, also for kubernetes.io/hostname: that label may differ from the name of
// the node, and two nodes may share it.
func (b *builder) affinity() {
	required, preferred := affinityOf(b.pod)
	if len(required) > 0 {
		b.near(required)
	}
	b.company("spec.affinity.podAffinity", preferred, -pointWeight)
}

// near says near which pods the pod has to be. Only pods that all terms select count for any of them, so there is one
// group, and a rule for each level.
func (b *builder) near(terms []corev1.PodAffinityTerm) {
	const field = "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution"
	all, err := termSelections(b.pod, terms)
	if err != nil {
		b.unsayable(field, "%v", err)
		return
	}
	for i := range terms {
		near := orbit.Near{Group: all.String(), Level: b.level(field, terms[i].TopologyKey)}
		switch {
		case b.spec.Near == (orbit.Near{}):
			b.spec.Near = near
		case near != b.spec.Near && !slices.Contains(b.spec.Nears, near):
			b.spec.Nears = append(b.spec.Nears, near)
		}
	}
}

// antiAffinity says from which pods the pod has to be apart, and from which it would rather be.
func (b *builder) antiAffinity() {
	const field = "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution"
	required, preferred := antiAffinityOf(b.pod)
	for i := range required {
		s, err := termSelection(b.pod, &required[i])
		if err != nil {
			b.unsayable(field, "%v", err)
			continue
		}
		b.apart(orbit.Apart{Group: s.String(), Level: b.level(field, required[i].TopologyKey)})
	}
	b.company("spec.affinity.podAntiAffinity", preferred, pointWeight)
}

// company says near which pods the pod would rather be, or not. A point weighs unit.
func (b *builder) company(field string, terms []corev1.WeightedPodAffinityTerm, unit float64) {
	field += ".preferredDuringSchedulingIgnoredDuringExecution"
	for i := range terms {
		s, err := termSelection(b.pod, &terms[i].PodAffinityTerm)
		if err != nil {
			b.unsayable(field, "%v", err)
			continue
		}
		b.prefer(orbit.Company{
			Group: s.String(), Level: b.level(field, terms[i].PodAffinityTerm.TopologyKey), Weight: unit * float64(terms[i].Weight),
		})
	}
}

// prefer adds a wish for company. Wishes about one group and level are one wish.
func (b *builder) prefer(c orbit.Company) {
	for i := range b.spec.PreferCompany {
		if known := &b.spec.PreferCompany[i]; known.Group == c.Group && known.Level == c.Level {
			known.Weight += c.Weight
			return
		}
	}
	b.spec.PreferCompany = append(b.spec.PreferCompany, c)
}

// spread says over which domains the pod and those like it are spread.
func (b *builder) spread() {
	const field = "spec.topologySpreadConstraints"
	var keys []string
	for i := range b.pod.Spec.TopologySpreadConstraints {
		c := &b.pod.Spec.TopologySpreadConstraints[i]
		level, hard := b.level(field, c.TopologyKey), c.WhenUnsatisfiable == corev1.DoNotSchedule
		if hard && !slices.Contains(keys, level) {
			keys = append(keys, level)
		}
		s, counts, err := spreadSelection(b.pod, c)
		switch {
		case err != nil:
			b.unsayable(field, "%v", err)
		case counts && hard:
			b.even(s.String(), level, c)
		case counts:
			b.prefer(orbit.Company{Group: s.String(), Level: level, Weight: pointWeight})
		}
	}
	// A node needs the labels of all constraints. One that lacks another label makes no domain eligible, so it has to
	// fail a requirement.
	if len(keys) > 1 || len(keys) > len(b.spec.Even) {
		for _, key := range keys {
			b.spec.Require = append(b.spec.Require, orbit.Predicate{Key: key, Op: "Exists"})
		}
	}
}

// even adds a rule Even for a constraint.
func (b *builder) even(group, level string, c *corev1.TopologySpreadConstraint) {
	e := orbit.Even{Group: group, Level: level, MaxSkew: int(c.MaxSkew)}
	if c.MinDomains != nil {
		if e.MinDomains = int(*c.MinDomains); e.MinDomains > mostSkew {
			b.unsayable("spec.topologySpreadConstraints.minDomains", "it is %d, and it can be %d", e.MinDomains, mostSkew)
			e.MinDomains = mostSkew
		}
	}
	e.IgnoreRequire = c.NodeAffinityPolicy != nil && *c.NodeAffinityPolicy == corev1.NodeInclusionPolicyIgnore
	e.HonorTaints = c.NodeTaintsPolicy != nil && *c.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor
	if e.MaxSkew > mostSkew { // which no group reaches
		e.MaxSkew = mostSkew
	}
	b.spec.Even = append(b.spec.Even, e)
}

// mostSkew is the largest skew of a rule Even, and the most domains that it can expect.
const mostSkew = 1 << 24

// level returns the level of orbit for a topology key, which is the key.
func (b *builder) level(field, key string) string {
	if key == orbit.NodeKey {
		b.unsayable(field, "orbit has another meaning for the key %q", key)
	}
	return key
}

// join puts the pod into its groups.
func (b *builder) join() {
	groups := append(slices.Clone(b.in.Groups(b.pod)), b.groups...)
	slices.Sort(groups)
	groups = slices.Compact(groups)
	if len(groups) > mostGroups {
		b.unsayable("metadata.labels", "the pod is in %d groups, by selectors of pods and disruption budgets, ports and claims; it can be in %d",
			len(groups), mostGroups)
		if groups = groups[:mostGroups]; b.pod.Spec.NodeName != "" { // a budget may be among the others, so nothing evicts it
			b.spec.Priority = math.MaxInt32
		}
	}
	if len(groups) > 0 {
		b.spec.Group, b.spec.Groups = groups[0], groups[1:]
	}
}

// limit refuses more rules than a spec can have.
func (b *builder) limit() {
	s := b.spec
	s.Apart = limited(b, "spec.affinity.podAntiAffinity", "rules to be apart, with those for host ports", s.Apart, mostRules)
	s.Nears = limited(b, "spec.affinity.podAffinity", "further rules to be near", s.Nears, mostRules-1)
	s.Even = limited(b, "spec.topologySpreadConstraints", "rules to be even", s.Even, mostRules)
	s.PreferCompany = limited(b, "spec.affinity", "preferences about other pods", s.PreferCompany, mostRules)
}

// limited returns at most so many of a list, and notes that there are more.
func limited[T any](b *builder, field, what string, list []T, most int) []T {
	if len(list) <= most {
		return list
	}
	b.unsayable(field, "there are %d %s, and there can be %d", len(list), what, most)
	return list[:most]
}
