package whatif

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/place"
)

// mostTried is how many changes of the request are tried, and how many nodes to add are verified. mostChanges is how many
// changes of the request are listed.
const (
	mostTried   = 64
	mostChanges = 16
)

// fixes returns the fixes in the order of [Explanation].Fixes.
func (a *asker) fixes(sets []*found) (out []Fix) {
	try := func(f *Fix) {
		if f != nil && a.verify(f) {
			out = append(out, *f)
		}
	}
	try(a.awaitHolds())
	try(a.outlast(sets))
	try(a.evict())
	try(a.move())
	out = append(out, a.changes(sets)...)
	try(a.add())
	return out
}

// changes returns the fixes that change the request or uncordon a node, the smallest first. It tries the smallest first,
// and none for the sets with a reason that no change removes, so that these do not use up the tries.
func (a *asker) changes(sets []*found) (out []Fix) {
	var candidates []*Fix
	sizes := map[*Fix]fixSize{}
	for _, of := range sets {
		if f := a.change(of); f != nil {
			candidates = append(candidates, f)
			sizes[f] = f.size(a.spec)
		}
	}
	slices.SortStableFunc(candidates, func(x, y *Fix) int {
		return cmp.Or(cmp.Compare(sizes[x].changes, sizes[y].changes), cmp.Compare(sizes[x].part, sizes[y].part))
	})
	for _, f := range candidates[:min(len(candidates), mostTried)] {
		if len(out) < mostChanges && a.verify(f) && a.isMinimal(f) {
			out = append(out, *f)
		}
	}
	return out
}

// fixSize says how much a fix changes: the number of changes, and the sum of the parts of the request that they give up,
// where a change that is no amount counts as 1.
type fixSize struct {
	changes int
	part    float64
}

// size returns how much of the spec a fix changes.
func (f *Fix) size(of *orbit.Spec) (s fixSize) {
	add := func(less, asked int64) {
		if less > 0 {
			s.changes++
			s.part += float64(less) / float64(asked)
		}
	}
	for d, less := range f.Less {
		add(less, of.Envelope.Reservation[d])
	}
	for _, less := range f.LessExtras {
		add(less.Amount, amountOf(of.Extras, less.Name))
	}
	add(int64(f.FewerDevices), int64(of.Devices.Count))
	add(int64(f.LessMilli), int64(of.Devices.Milli))
	for range len(f.Drop) + len(f.NotNear) {
		add(1, 1)
	}
	for _, is := range []bool{f.AcceptModel != "", f.Uncordon != ""} {
		if is {
			add(1, 1)
		}
	}
	return s
}

// amountOf returns the amount of an extra in a list, 0 if it is not there.
func amountOf(extras []orbit.Extra, name string) int64 {
	for _, x := range extras {
		if x.Name == name {
			return x.Amount
		}
	}
	return 0
}

// isMinimal reports whether no node takes the capsule if the fix changes one thing less.
func (a *asker) isMinimal(f *Fix) bool {
	parts := f.parts(a.spec)
	if len(parts) == 1 { // no node takes it without any change
		return true
	}
	for _, p := range parts {
		spec, err := p.spec.Share()
		if err != nil { // unexpected: the original spec and the changed one are valid, so a spec between them should be too
			return false
		}
		part := asker{state: a.state, members: a.members, closes: closesOf(a.state, spec)}
		if part.ask(spec); part.fitsSomewhere(p.uncordon) {
			return false
		}
	}
	return true
}

// fitsSomewhere reports whether any node takes the spec if the node uncordoned is schedulable.
func (a *asker) fitsSomewhere(uncordoned orbit.NodeID) bool {
	for n := range a.state.Nodes() {
		r := roomOf(n)
		set := a.of(n, &r)
		set.set(int(Cordoned), set.has(int(Cordoned)) && n.Node.ID != uncordoned)
		if set == (reasonSet{}) {
			return true
		}
	}
	return false
}

// probe returns an unused id for the capsule with which fixes are tried.
func (a *asker) probe() orbit.CapsuleID {
	id := orbit.CapsuleID("whatif")
	for a.state.Capsule(id) != nil {
		id += "+"
	}
	return id
}

// verify reports whether the fix's proposal commits on the state. It first fills in the fields that all fixes have.
func (a *asker) verify(f *Fix) bool {
	f.state = a.state
	f.Spec = cmp.Or(f.Spec, a.spec)
	_, err := a.state.With(f.Proposal(a.probe()))
	return err == nil
}

// change returns a fix that removes all reasons against the best node of a group, by changing the request and
// uncordoning the node. Nil: a reason cannot be removed in this way.
func (a *asker) change(of *found) *Fix {
	f := &Fix{Node: of.best.Node.ID}
	spec, r := *a.spec, roomOf(of.best)
	r, _ = a.open(of.best, &r)
	spec.Require = nil
	for i, p := range a.spec.Require {
		if of.set.has(firstRequirement + i) {
			f.Drop = append(f.Drop, p)
		} else {
			spec.Require = append(spec.Require, p)
		}
	}
	for d := range spec.Envelope.Reservation {
		if want := spec.Envelope.Reservation[d]; want > 0 && want > r.Resources[d] {
			if r.Resources[d] <= 0 {
				return nil // work that asks for something has no use for nothing
			}
			f.Less[d] = want - r.Resources[d]
			spec.Envelope.Reservation[d] -= f.Less[d]
		}
	}
	spec.Extras = nil
	for _, x := range a.spec.Extras {
		free := max(0, a.extraFree(&r, x.Name))
		if less := x.Amount - free; less > 0 {
			f.LessExtras, x.Amount = append(f.LessExtras, orbit.Extra{Name: x.Name, Amount: less}), free
		}
		if x.Amount > 0 {
			spec.Extras = append(spec.Extras, x)
		}
	}
	if of.set.has(int(Model)) || r.With(spec.Devices.Milli) < spec.Devices.Count {
		f.relax(&spec.Devices, &r)
	}
	for i := range a.nears {
		if of.set.has(firstCompany + i) {
			f.NotNear = append(f.NotNear, a.nears[i].Near)
		}
	}
	drop(f.NotNear, a.spec, &spec)
	if of.set.has(int(Cordoned)) {
		node := *of.best.Node
		node.State = orbit.Ready
		f.Uncordon, f.before = node.ID, []orbit.Commitment{orbit.PutNode{Node: node}}
	}
	if of.set.has(int(Lost)) || of.set.has(int(Tainted)) || of.set.has(int(Ruled)) { // taints and rules are deliberate, so no fix overrides them
		return nil
	}
	f.Spec, f.devices = spec.Clone(), r.pick(&spec)
	return f
}

// relax changes the request for devices so that the node can serve it, and notes the change in the fix. It prefers
// fewer instances, then smaller parts of each, and drops the request if the node has no device with anything free.
func (f *Fix) relax(ask *orbit.DeviceRequest, r *room) {
	if r.node.Devices.Count > 0 && !ask.Accepts(r.node.Devices.Model) {
		f.AcceptModel = r.node.Devices.Model
		ask.Models = append(slices.Clone(ask.Models), f.AcceptModel)
	}
	if n := r.With(ask.Milli); n > 0 {
		f.FewerDevices = max(0, ask.Count-n)
		ask.Count -= f.FewerDevices
		return
	}
	most := 0
	for i := range r.node.Devices.Count {
		most = max(most, int(r.Devices[i]))
	}
	if n := r.With(most); most > 0 {
		f.LessMilli, f.FewerDevices = ask.Milli-most, max(0, ask.Count-n)
		ask.Milli, ask.Count = most, ask.Count-f.FewerDevices
		return
	}
	f.FewerDevices, f.AcceptModel = ask.Count, ""
	*ask = orbit.DeviceRequest{}
}

// pick chooses device instances for a capsule of the spec; none if there are too few.
func (r *room) pick(spec *orbit.Spec) orbit.DeviceSet {
	if r.With(spec.Devices.Milli) < spec.Devices.Count {
		return 0
	}
	return r.Pick(spec, 0)
}

// awaitHolds returns a fix that waits for the end of holds on one node: the node on which the capsule fits soonest, and
// no more of its holds than necessary. Nil: the end of holds on one node does not help.
func (a *asker) awaitHolds() (best *Fix) {
	byNode := map[orbit.NodeID][]orbit.Hold{}
	for h := range a.state.Holds() {
		byNode[h.Node] = append(byNode[h.Node], h)
	}
	for _, id := range slices.Sorted(maps.Keys(byNode)) {
		holds := byNode[id]
		slices.SortFunc(holds, func(x, y orbit.Hold) int { return cmp.Or(x.Ends.Compare(y.Ends), cmp.Compare(x.ID, y.ID)) })
		n := a.state.Node(id)
		free := func(ended []orbit.Hold) *room {
			r := roomOf(n)
			for _, h := range ended {
				r.Give(&h, n.Node)
			}
			if a.of(n, &r) != (reasonSet{}) {
				return nil
			}
			return &r
		}
		ended := minimal(holds, func(ended []orbit.Hold) bool { return free(ended) != nil })
		if len(ended) == 0 {
			continue
		}
		f := &Fix{Node: id, Await: ended, Until: ended[len(ended)-1].Ends, devices: free(ended).pick(a.spec)}
		for _, h := range ended {
			f.before = append(f.before, orbit.Release{Hold: h.ID})
		}
		if best == nil || f.Until.Before(best.Until) {
			best = f
		}
	}
	return best
}

// minimal returns the shortest prefix of a list that serves, without the entries that can be left out of it. Nil: the
// whole list does not serve.
func minimal[T any](list []T, serves func([]T) bool) []T {
	n := 1
	for ; n <= len(list) && !serves(list[:n]); n++ {
	}
	if n > len(list) {
		return nil
	}
	out := slices.Clone(list[:n])
	for i := len(out) - 2; i >= 0; i-- { // the last one is needed
		if less := slices.Delete(slices.Clone(out), i, i+1); serves(less) {
			out = less
		}
	}
	return out
}

// outlast returns a fix that waits for the end of nominations on one node, against which nothing else speaks. Nil:
// there is no such node.
func (a *asker) outlast(sets []*found) *Fix {
	var only reasonSet
	only.add(int(Nominated))
	at := slices.IndexFunc(sets, func(f *found) bool { return f.set == only })
	if at < 0 {
		return nil
	}
	n := sets[at].best
	var made []*orbit.Nomination
	for of := range n.Nominated {
		made = append(made, of)
	}
	slices.SortStableFunc(made, func(x, y *orbit.Nomination) int { return x.Ends.Compare(y.Ends) })
	r := roomOf(n)
	f := &Fix{Node: n.Node.ID, devices: r.pick(a.spec)}
	f.Outlast = minimal(made, func(ended []*orbit.Nomination) bool {
		f.before = f.before[:0]
		for _, of := range ended {
			f.before = append(f.before, orbit.Nominate{Capsule: of.Capsule, Gang: of.Gang, Since: of.Made})
		}
		return a.verify(f)
	})
	if len(f.Outlast) == 0 {
		return nil
	}
	f.before = nil
	for _, of := range f.Outlast {
		f.before = append(f.before, orbit.Nominate{Capsule: of.Capsule, Gang: of.Gang, Since: of.Made})
		if of.Ends.After(f.Until) {
			f.Until = of.Ends
		}
	}
	return f
}

// kept says which evictions would help if a budget did not forbid them; empty if there are none, or if one of the fixes evicts or moves
// what a budget lets go.
func (a *asker) kept(fixes []Fix) string {
	if slices.ContainsFunc(fixes, func(f Fix) bool { return len(f.Evict)+len(f.Move) > 0 }) {
		return ""
	}
	free, err := withoutBudgets(a.state)
	if err != nil || free == a.state {
		return ""
	}
	f := askerOf(free, a.spec).evict()
	if f == nil {
		return ""
	}
	f.state, f.Spec = a.state, a.spec
	var refusal *orbit.Rejection
	if _, err := a.state.With(f.Proposal(a.probe())); !errors.As(err, &refusal) || refusal.Budget == "" {
		return ""
	}
	victims := "those of"
	if len(f.Evict) == 1 {
		victims = fmt.Sprintf("%q on", f.Evict[0])
	}
	return fmt.Sprintf("evicting %s node %s would make room and is forbidden: %s; wait until more members are ready, or put the budget with more that may be missing",
		victims, f.Node, refusal.Reason)
}

// evict returns a fix that evicts capsules of lower priority from the best node for that; nil: there is none.
func (a *asker) evict() *Fix {
	id := a.probe()
	submitted, err := a.state.With(orbit.Proposal{Do: []orbit.Commitment{orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: a.spec}}})
	if err != nil {
		return nil
	}
	draft, _, err := draftOf(context.Background(), submitted, a.spec)
	if err != nil {
		return nil
	}
	c := submitted.Capsule(id)
	best, err := (&place.Indexed{}).BestEvicting(draft, c)
	if err != nil || best.On(draft, c) != nil {
		return nil
	}
	f := &Fix{}
	for _, do := range draft.Propose().Do {
		switch do := do.(type) {
		case orbit.Evict:
			f.Evict, f.evicts = append(f.Evict, do.Capsule), append(f.evicts, do)
		case orbit.Place:
			f.Node, f.devices = do.Node, do.Devices
		}
	}
	return f
}
