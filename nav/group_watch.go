package nav

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
)

// GroupWatch follows a ledger and says how groups fare: gangs, and co-location groups, whose members must be
// near their own group. It counts what is committed, whichever navigators place it, so one watch serves a whole
// ledger. The zero value works. It is not for concurrent use.
//
// It costs what has changed, and for each gang that has changed a look at its members.
type GroupWatch struct {
	// Placed counts placements since the first Refresh, Anchors those of them that are anchors ([AnchorNote]).
	Placed, Anchors int
	// Assisted counts the anchors and all members that they brought: those that had to be near their group and
	// were placed while it ran from an anchor, in room that was held or elsewhere. Assisted/Placed is the
	// assisted share.
	Assisted int

	state *orbit.State
	// Since when groups wait of which a member is pending.
	waits map[groupKey]time.Time
	// Co-location groups that an anchor has started, as long as anything of them runs.
	anchored map[string]bool
}

// groupKey names a gang or a co-location group; the other field is empty.
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
	// Members counts those that run.
	Members int
	// Since is when the first member was seen waiting, after a submission or a release; Bound is when none was
	// seen waiting any more. Both are instants of a Refresh.
	Since, Bound time.Time
}

// Refresh takes in what has been committed since the last time, as of now, and returns the groups that are
// bound since then. Call it whenever the ledger has something new: what comes and goes between two calls is not
// seen to wait, but a group that is submitted and bound between them is returned. An error leaves all as it
// was.
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

// groupTouch is one Refresh: the groups of which something has changed, in order.
type groupTouch struct {
	watch     *GroupWatch
	state     *orbit.State
	keys      []groupKey
	submitted map[groupKey]bool
}

// all looks at every group that there is, and at those that have waited.
func (t *groupTouch) all() {
	t.keys = slices.SortedFunc(maps.Keys(t.watch.waits), groupKey.compare)
	for c := range t.state.Capsules() {
		t.touch(c)
		if c.Placed() && c.Note == AnchorNote {
			t.watch.anchored[c.Spec.Group] = true
		}
	}
}

// touch notes the group of a capsule, if it has one.
func (t *groupTouch) touch(c *orbit.Capsule) {
	switch {
	case c == nil:
	case c.Gang != "":
		t.keys = append(t.keys, groupKey{gang: c.Gang})
	case nearItsOwn(c.Spec):
		t.keys = append(t.keys, groupKey{group: c.Spec.Group})
	}
}

// nearItsOwn reports whether capsules of the spec wait for a member of their own group.
func nearItsOwn(spec *orbit.Spec) bool {
	return spec.Group != "" && spec.Near.Group == spec.Group && spec.Class != orbit.GangClass
}

// change counts a change, and notes whose it is.
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
	case orbit.Release:
		if do.Capsule != "" {
			t.touch(t.state.Capsule(do.Capsule))
		}
	}
}

// count counts a placement. There may be no record any more of the capsule.
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

// review finds out of the groups that have changed which wait and which are bound.
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

// roles returns the members that wait, by what they ask for.
func (k groupKey) roles(state *orbit.State) (out []anchorRole) {
	if k.gang == "" {
		for spec, count := range state.GroupPending(k.group) {
			if spec.Group == k.group && nearItsOwn(spec) {
				out = append(out, anchorRole{spec: spec, count: count})
			}
		}
		return out
	}
	g := state.Gang(k.gang)
	if g == nil {
		return nil
	}
	for i := range g.Gang.Roles {
		role := anchorRole{spec: g.Gang.Roles[i].Spec}
		for _, id := range g.Gang.Roles[i].Members {
			if c := state.Capsule(id); c != nil && c.Gang == k.gang && c.Pending() {
				role.count++
			}
		}
		if role.count > 0 {
			out = append(out, role)
		}
	}
	return out
}
