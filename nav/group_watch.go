package nav

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
)

// GroupWatch follows a ledger and reports when its groups are bound, and what waiting groups lack. Groups are gangs,
// and co-location groups whose members must be near their own group. It counts committed placements, whichever
// navigator proposed them, so one watch serves a whole ledger. The zero value works. It is not safe for concurrent use.
//
// A Refresh costs a look at each change, and at all members of each gang that has changed.
type GroupWatch struct {
	// Placed is how many placements were committed since the first Refresh; Anchors is how many of them are anchors
	// ([AnchorNote]).
	Placed, Anchors int
	// Assisted is how many of the placements are anchors or members that followed one: members that must be near their
	// group and were placed while it ran from an anchor, in held room or elsewhere. Assisted/Placed is the assisted
	// share.
	Assisted int

	state *orbit.State
	// Since when each group waits that has a pending member.
	waits map[groupKey]time.Time
	// Co-location groups that an anchor has started and of which a member still runs.
	anchored map[string]bool
}

// groupKey identifies a gang or a co-location group; the other field is empty.
type groupKey struct {
	gang  orbit.GangID
	group string
}

func (k groupKey) compare(o groupKey) int {
	return cmp.Or(cmp.Compare(k.gang, o.gang), cmp.Compare(k.group, o.group))
}

// GroupBind says that all members of a group are placed. Bound less Since is its bind latency.
type GroupBind struct {
	// Gang names a gang, Group a co-location group; the other is empty.
	Gang orbit.GangID
	// Group names a co-location group; empty if Gang is set.
	Group string
	// Members is how many members run.
	Members int
	// Since is when the first member was seen waiting, after a submission or a release. Bound is when no member was
	// seen waiting any more. Both are the now of a Refresh.
	Since, Bound time.Time
}

// Refresh reads what was committed since the last call, as of now, and returns the groups that were bound since then.
// Call it whenever the ledger has changed. A member that is released and placed again between two calls is not seen
// waiting, but a group that is submitted and bound between them is returned. After an error the watch is as before.
func (w *GroupWatch) Refresh(ctx context.Context, ledger orbit.Ledger, now time.Time) ([]GroupBind, error) {
	state, changes, whole, err := w.state.CatchUp(ctx, ledger)
	if err != nil || state == w.state {
		return nil, err
	}
	if w.state == nil {
		w.waits, w.anchored = map[groupKey]time.Time{}, map[string]bool{}
	}
	t := groupTouch{watch: w, state: state, submitted: map[groupKey]bool{}}
	if whole {
		t.all()
	}
	for i := range changes {
		t.change(&changes[i])
	}
	w.state = state
	return t.review(now), nil
}

// groupTouch is the state of one Refresh: the groups that have changed, in order.
type groupTouch struct {
	watch     *GroupWatch
	state     *orbit.State
	keys      []groupKey
	submitted map[groupKey]bool
}

// all adds every group on the ledger, and every group that was waiting.
func (t *groupTouch) all() {
	t.keys = slices.SortedFunc(maps.Keys(t.watch.waits), groupKey.compare)
	for c := range t.state.Capsules() {
		t.touch(c)
		if c.Placed() && c.Note() == AnchorNote {
			t.watch.anchored[c.Spec.Group] = true
		}
	}
}

// touch adds the group of a capsule, if it has one.
func (t *groupTouch) touch(c *orbit.Capsule) {
	switch {
	case c == nil:
	case c.Gang() != "":
		t.keys = append(t.keys, groupKey{gang: c.Gang()})
	case nearItsOwn(c.Spec):
		t.keys = append(t.keys, groupKey{group: c.Spec.Group})
	}
}

// nearItsOwn reports whether capsules of the spec wait for a member of their own group.
func nearItsOwn(spec *orbit.Spec) bool {
	return spec.Group != "" && spec.Near.Group == spec.Group && spec.Near.Level != orbit.NodeKey && spec.Class != orbit.GangClass
}

// change counts a placement, and adds the group that the change concerns.
func (t *groupTouch) change(change *orbit.Change) {
	switch do := change.Do.(type) {
	case orbit.Submit:
		key := groupKey{}
		switch {
		case do.Gang != nil:
			key.gang = do.Gang.ID
		case nearItsOwn(do.Spec):
			key.group = do.Spec.Group
		default:
			return
		}
		t.keys = append(t.keys, key)
		t.submitted[key] = true
	case orbit.Place:
		c := t.state.Capsule(do.Capsule)
		t.watch.count(c, do.Note)
		t.touch(c)
	case orbit.Evict:
		t.touch(t.state.Capsule(do.Capsule))
	case orbit.Adopt:
		t.touch(t.state.Capsule(do.Capsule))
	case orbit.Respec: // it may leave one group and join another
		if t.watch.state != nil {
			t.touch(t.watch.state.Capsule(do.Capsule))
		}
		t.touch(t.state.Capsule(do.Capsule))
	case orbit.Release:
		if do.Capsule != "" {
			t.touch(t.state.Capsule(do.Capsule))
		}
	}
}

// count counts a placement. c is nil if the ledger no longer has a record of the capsule.
func (w *GroupWatch) count(c *orbit.Capsule, note string) {
	w.Placed++
	switch {
	case note == AnchorNote:
		w.Anchors++
		w.Assisted++
		if c != nil {
			w.anchored[c.Spec.Group] = true
		}
	case c != nil && nearItsOwn(c.Spec) && w.anchored[c.Spec.Group]:
		w.Assisted++
	}
}

// review updates since when each changed group waits, and returns the groups that are now bound.
func (t *groupTouch) review(now time.Time) (bound []GroupBind) {
	seen := map[groupKey]bool{}
	for _, key := range t.keys {
		if seen[key] {
			continue
		}
		seen[key] = true
		waiting, running := key.count(t.state)
		since, waited := t.watch.waits[key]
		switch {
		case waiting > 0 && !waited:
			t.watch.waits[key] = now
		case waiting == 0:
			delete(t.watch.waits, key)
			if !waited {
				since = now
			}
			if running > 0 && (waited || t.submitted[key]) {
				bound = append(bound, GroupBind{Gang: key.gang, Group: key.group, Members: running, Since: since, Bound: now})
			}
		}
		if running == 0 {
			delete(t.watch.anchored, key.group)
		}
	}
	return bound
}

// count returns how many members wait, and how many run.
func (k groupKey) count(state *orbit.State) (waiting, running int) {
	for _, role := range k.roles(state) {
		waiting += role.count
	}
	if k.gang == "" {
		for _, n := range state.GroupNodes(k.group) {
			running += n
		}
	} else if g := state.Gang(k.gang); g != nil {
		running = g.Total()
	}
	return waiting, running
}

// roles returns how many members wait, by spec.
func (k groupKey) roles(state *orbit.State) (out []anchorRole) {
	if k.gang == "" {
		for spec, count := range state.GroupPending(k.group) {
			if spec.Group == k.group && nearItsOwn(spec) {
				out = append(out, anchorRole{spec: spec, count: count})
			}
		}
		return out
	}
	for c := range state.Members(k.gang) {
		if !c.Pending() {
			continue
		}
		at := slices.IndexFunc(out, func(r anchorRole) bool { return r.spec == c.Spec })
		if at < 0 {
			at, out = len(out), append(out, anchorRole{spec: c.Spec})
		}
		out[at].count++
	}
	return out
}
