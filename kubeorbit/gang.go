package kubeorbit

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"

	"github.com/orbitsched/orbit"
	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	"k8s.io/apimachinery/pkg/types"
)

// GangMinAnnotation is the annotation that says how many pods of a gang ([GangLabel]) are placed together at least. All
// pods of a gang should say the same; the largest number counts. Without it a gang starts with the pods that are there
// when the first of them is seen, so set it.
const GangMinAnnotation = "kubeorbit.dev/gang-min"

// GangLevelAnnotation is the annotation that names the label of nodes in one domain of which a gang is placed, for example
// a rack.
const GangLevelAnnotation = "kubeorbit.dev/gang-level"

// gang is what the mirror knows of a set of pods that are placed together.
type gang struct {
	// The gang's id in the ledger. It ends in the UID of a pod, so that a gang that is made again under its name has another.
	id orbit.GangID
	// How many are placed together at least.
	least int
	level string
	// The members that have not ended, by capsule.
	members map[orbit.CapsuleID]*want
}

// gangOf returns the name of the gang of a pod, of how many pods it is at least, and the level in one domain of which it is
// placed. Pod groups are in the name space of the API server, labelled gangs in another one. Known is false for a pod group
// that does not exist yet.
func (m *mirror) gangOf(p *corev1.Pod) (name types.NamespacedName, least int, level string, known bool) {
	if g := p.Spec.SchedulingGroup; g != nil && g.PodGroupName != nil {
		name = types.NamespacedName{Namespace: p.Namespace, Name: "podgroup:" + *g.PodGroupName}
		if m.groups == nil {
			return name, 0, "", false
		}
		group := get[schedulingv1alpha2.PodGroup](m.groups, types.NamespacedName{Namespace: p.Namespace, Name: *g.PodGroupName})
		switch {
		case group == nil:
			return name, 0, "", false
		case group.Spec.SchedulingPolicy.Gang == nil:
			return types.NamespacedName{}, 0, "", true
		}
		if c := group.Spec.SchedulingConstraints; c != nil && len(c.Topology) > 0 {
			level = c.Topology[0].Key
		}
		return name, int(group.Spec.SchedulingPolicy.Gang.MinCount), level, true
	}
	label := p.Labels[GangLabel]
	if label == "" {
		return types.NamespacedName{}, 0, "", true
	}
	least, _ = strconv.Atoi(p.Annotations[GangMinAnnotation])
	return types.NamespacedName{Namespace: p.Namespace, Name: label}, least, p.Annotations[GangLevelAnnotation], true
}

// join counts a pod among the members of its gang. The error says why it cannot be submitted yet.
func (m *mirror) join(p *corev1.Pod, r *record, w *want) error {
	name, least, level, known := m.gangOf(p)
	if !known {
		return fmt.Errorf("pod group %q does not exist, or the API server has no pod groups", *p.Spec.SchedulingGroup.PodGroupName)
	}
	if name.Name == "" {
		return nil
	}
	g := m.gangs[name]
	if g == nil {
		g = &gang{members: map[orbit.CapsuleID]*want{}}
		m.gangs[name] = g
	}
	g.least, g.level = max(g.least, least, 1), cmp.Or(g.level, level)
	if r.gang = name; w.phase == stopping {
		delete(g.members, w.id)
		return nil
	}
	g.members[w.id], w.gang = w, g
	if g.id == "" {
		g.id = orbit.GangID(name.String() + "/" + string(p.UID))
	}
	running := 0
	for _, o := range g.members {
		running += int(btoi(o.phase == bound))
	}
	if running == 0 && len(g.members) < g.least {
		return fmt.Errorf("gang %s has %d of the %d pods that are placed together", name.Name, len(g.members), g.least)
	}
	for id := range g.members { // those that have waited for this one
		m.leaves.say(id, nil)
	}
	return nil
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
		for _, o := range g.members {
			if c := state.Capsule(o.id); c == nil || c.Released() && c.Remains() == nil {
				members = append(members, o)
			}
		}
		slices.SortFunc(members, func(a, b *want) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.id, b.id)) })
		if old := state.Gang(g.id); old != nil { // all its members have ended
			g.id = orbit.GangID(string(g.id[:len(g.id)-len(uidOf(orbit.CapsuleID(g.id)))]) + string(uidOf(w.id)))
		}
	}
	submit := orbit.Submit{Join: join, Owner: w.owner, At: w.at, Gang: &orbit.Gang{ID: g.id}}
	if !join {
		submit.Gang.Min = min(g.least, len(members))
		if g.level != "" {
			submit.Gang.Levels = []string{g.level}
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
