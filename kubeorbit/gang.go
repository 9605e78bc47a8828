package kubeorbit

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/orbitsched/orbit"
	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// GangMinAnnotation is the annotation for the least number of pods of a gang ([GangLabel]) that start together. The largest
// number among the pods counts. A pod with the label and without the annotation is not placed.
const GangMinAnnotation = "kubeorbit.dev/gang-min"

// GangLevelAnnotation names a node label, for example of racks. All pods of the gang go to nodes with one value of it.
const GangLevelAnnotation = "kubeorbit.dev/gang-level"

// neverLabel is the label that all capsules of a gang have if one of its pods has preemptionPolicy Never. The class says so of pods that
// are alone; all gangs have the same class.
const neverLabel = "kubeorbit.dev/never-preempts"

// partners refuses a pod with a label or an annotation of this scheduler that would have no effect: because another one is missing, or
// because it is a label that has to be an annotation, or the other way round. It does not ignore it, because its author relies on it.
func partners(p *corev1.Pod) error {
	for _, key := range []string{GangLabel, QueueLabel} {
		if _, label := p.Labels[key]; label {
			continue
		}
		if _, annotation := p.Annotations[key]; annotation {
			return &Unsayable{"metadata.annotations[" + key + "]", "it has to be a label"}
		}
	}
	name, named := p.Labels[GangLabel]
	if named && name == "" {
		return &Unsayable{"metadata.labels[" + GangLabel + "]", "it is empty; it names the gang of the pod"}
	}
	for _, key := range []string{GangMinAnnotation, GangLevelAnnotation} {
		_, label := p.Labels[key]
		switch _, annotation := p.Annotations[key]; {
		case label && !annotation:
			return &Unsayable{"metadata.labels[" + key + "]", "it has to be an annotation"}
		case annotation && !named:
			return &Unsayable{"metadata.annotations[" + key + "]", fmt.Sprintf("without the label %s, which names a gang, it says nothing", GangLabel)}
		}
	}
	return nil
}

// gang is what the mirror knows of a set of pods that are placed together.
type gang struct {
	// The name in the cluster, and the gang's id in the ledger. The id names the UID of a pod, so that a gang that is made again
	// under its name has another.
	name types.NamespacedName
	id   orbit.GangID
	// The members that have not ended, by capsule.
	members map[orbit.CapsuleID]*want
}

// least returns how many members start together at least: the most that a member says.
func (g *gang) least() (n int) {
	for _, w := range g.members {
		n = max(n, w.gangLeast)
	}
	return n
}

// level returns the label whose value all nodes of the gang share; empty: none. The oldest member that names one decides.
func (g *gang) level() string {
	for _, w := range g.sorted() {
		if w.gangLevel != "" {
			return w.gangLevel
		}
	}
	return ""
}

// sorted returns the members, the oldest first.
func (g *gang) sorted() []*want {
	return slices.SortedFunc(maps.Values(g.members), func(a, b *want) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.id, b.id)) })
}

// gangName returns the name of the gang of a pod; empty: it is in none. A pod group has another name than a label.
func gangName(p *corev1.Pod) string {
	if g := p.Spec.SchedulingGroup; g != nil && g.PodGroupName != nil {
		return "podgroup:" + *g.PodGroupName
	}
	return p.Labels[GangLabel]
}

// podGroupOf returns the pod group of a pod; nil: the pod names none, or it is not known.
func (m *mirror) podGroupOf(p *corev1.Pod) *schedulingv1alpha2.PodGroup {
	g := p.Spec.SchedulingGroup
	if g == nil || g.PodGroupName == nil || m.groups == nil {
		return nil
	}
	return get[schedulingv1alpha2.PodGroup](m.groups, types.NamespacedName{Namespace: p.Namespace, Name: *g.PodGroupName})
}

// groupLacks refuses a pod whose pod group asks for what no gang has: that its pods are evicted together also above the minimum, or a
// priority of its own. A pod that runs is in its gang nevertheless.
func (m *mirror) groupLacks(p *corev1.Pod) error {
	const field = "spec.schedulingGroup"
	group := m.podGroupOf(p)
	if group == nil {
		return nil
	}
	if mode := group.Spec.DisruptionMode; mode != nil && *mode == schedulingv1alpha2.DisruptionModePodGroup {
		return &Unsayable{field, fmt.Sprintf("pod group %q has disruptionMode PodGroup, and orbit evicts the pods of a gang one by one while its minimum remains", group.Name)}
	}
	own := int32(0)
	if p.Spec.Priority != nil {
		own = *p.Spec.Priority
	}
	if priority := group.Spec.Priority; priority != nil && *priority != own {
		return &Unsayable{field, fmt.Sprintf("pod group %q has priority %d, and the pod has %d; in orbit a gang has the priority of its pods", group.Name, *priority, own)}
	}
	return nil
}

// gangOf returns the name of a pod's gang, its minimum, and the label whose value all its nodes share. The name is empty if the
// pod is in none, or in a group without a minimum. The error says why the gang cannot be placed yet.
func (m *mirror) gangOf(p *corev1.Pod) (name types.NamespacedName, least int, level string, err error) {
	none := types.NamespacedName{}
	name = types.NamespacedName{Namespace: p.Namespace, Name: gangName(p)}
	if name.Name == "" {
		return none, 0, "", nil
	}
	if g := p.Spec.SchedulingGroup; g != nil && g.PodGroupName != nil {
		group := m.podGroupOf(p)
		switch {
		case group == nil:
			return none, 0, "", fmt.Errorf("pod group %q does not exist, or the API server has no pod groups", *g.PodGroupName)
		case group.Spec.SchedulingPolicy.Gang == nil && group.Spec.SchedulingConstraints != nil && len(group.Spec.SchedulingConstraints.Topology) > 0:
			return none, 0, "", fmt.Errorf("pod group %q has a topology constraint, which orbit cannot keep without a gang policy", *g.PodGroupName)
		case group.Spec.SchedulingPolicy.Gang == nil:
			return none, 0, "", nil
		}
		if c := group.Spec.SchedulingConstraints; c != nil && len(c.Topology) > 0 {
			level = c.Topology[0].Key
		}
		return name, int(group.Spec.SchedulingPolicy.Gang.MinCount), level, nil
	}
	least, err = strconv.Atoi(p.Annotations[GangMinAnnotation])
	if err != nil || least < 1 {
		return none, 0, "", fmt.Errorf("the annotation %s of a pod with the label %s is missing or no number (%q); it says how many pods of the gang start together", GangMinAnnotation, GangLabel, p.Annotations[GangMinAnnotation])
	}
	return name, least, p.Annotations[GangLevelAnnotation], nil
}

// join counts a pod among the members of its gang. The error says why it cannot be submitted yet.
func (m *mirror) join(state *orbit.State, p *corev1.Pod, r *record, w *want) error {
	name, least, level, err := m.gangOf(p)
	if r.gang != name || w.phase == stopping {
		m.quit(r)
	}
	if err != nil || name.Name == "" || w.phase == stopping {
		return err
	}
	g := m.gangs[name]
	if g == nil {
		g = &gang{name: name, members: map[orbit.CapsuleID]*want{}}
		m.gangs[name] = g
	}
	w.gang, w.gangLeast, w.gangLevel = g, least, level
	g.members[w.id], r.gang = w, name
	if g.id == "" {
		g.id = orbit.GangID(name.String() + "/" + string(p.UID))
	}
	there := len(g.members)
	for _, o := range g.members {
		if c := state.Capsule(o.id); o.phase == bound || c != nil && c.Placed() && c.Begun {
			return nil // it runs
		}
	}
	var why error
	if there < g.least() {
		if there += m.succeeded(p); there < g.least() {
			why = fmt.Errorf("gang %s has %d of the %d pods that are placed together", strings.TrimPrefix(name.Name, "podgroup:"), there, g.least())
		}
	}
	for id := range g.members { // the others wait for the same, or have waited for this one
		m.leaves.say(podOf(id), why)
	}
	return why
}

// succeeded counts the pods of a pod's gang that are done.
func (m *mirror) succeeded(p *corev1.Pod) (n int) {
	all, _ := m.pods.ByIndex(cache.NamespaceIndex, p.Namespace)
	for _, o := range all {
		if other, ok := o.(*corev1.Pod); ok && other.Status.Phase == corev1.PodSucceeded && gangName(other) == gangName(p) {
			n++
		}
	}
	return n
}

// quit takes the capsule of a record out of its gang. The other members are compared again: they may be too few now.
func (m *mirror) quit(r *record) {
	g := m.gangs[r.gang]
	if r.gang = (types.NamespacedName{}); g == nil {
		return
	}
	if delete(g.members, r.id); len(g.members) == 0 {
		delete(m.gangs, g.name)
	}
	for id := range g.members {
		m.queue.Add(key{ofPod, podOf(id)})
	}
}

func btoi(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// submit returns what submits a member: alone, if the gang is there, else with all members.
func (g *gang) submit(state *orbit.State, w *want) (do []orbit.Commitment) {
	members := []*want{w}
	join := g.lives(state)
	if !join {
		members = members[:0]
		for _, o := range g.sorted() {
			known := o.phase != bound || state.Node(o.node) != nil
			if c := state.Capsule(o.id); known && (c == nil || c.Released() && c.Remains() == nil) {
				members = append(members, o)
			}
		}
		if old := state.Gang(g.id); old != nil { // all its members have ended
			g.id = orbit.GangID(fmt.Sprintf("%s/%s/%d", g.name, uidOf(w.id), state.Revision()))
		}
	}
	submit := orbit.Submit{Join: join, Owner: w.owner, At: w.at, Gang: &orbit.Gang{ID: g.id}}
	if !join {
		submit.Gang.Min = min(g.least(), len(members))
		if level := g.level(); level != "" {
			submit.Gang.Levels = []string{level}
		}
	}
	for _, o := range g.members {
		if o.never {
			submit.Labels = map[string]string{neverLabel: "yes"}
		}
	}
	for _, o := range members {
		g.addTo(submit.Gang, o, state, join)
		if o.phase == bound {
			do = append(do, o.runs())
		}
	}
	return append([]orbit.Commitment{submit}, do...)
}

// lives reports whether the ledger has the gang, with a member that has not ended.
func (g *gang) lives(state *orbit.State) bool {
	known := state.Gang(g.id)
	if known == nil {
		return false
	}
	for i := range known.Gang.Roles {
		if known.Left(i) > 0 {
			return true
		}
	}
	return false
}

// addTo adds a member to its role, which is that of all members with an equal spec. A role asks for one member at least, or
// for the minimum of the gang if it is the only one.
func (g *gang) addTo(to *orbit.Gang, w *want, state *orbit.State, join bool) {
	name := roleOf(w.spec)
	i := slices.IndexFunc(to.Roles, func(r orbit.Role) bool { return r.Name == name })
	if i < 0 {
		least := 1
		if known := state.Gang(g.id); join && known != nil && slices.ContainsFunc(known.Gang.Roles, func(r orbit.Role) bool { return r.Name == name }) {
			least = 0
		}
		i, to.Roles = len(to.Roles), append(to.Roles, orbit.Role{Name: name, Spec: w.spec, Min: least})
	}
	to.Roles[i].Members = append(to.Roles[i].Members, w.id)
}

// roleOf returns the name of the role of a spec.
func roleOf(s *orbit.Spec) string {
	text, err := json.Marshal(s)
	if err != nil { // no spec has what JSON cannot say
		panic(err)
	}
	sum := fnv.New64a()
	sum.Write(text)
	return strconv.FormatUint(sum.Sum64(), 36)
}
