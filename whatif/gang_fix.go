package whatif

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/orbitsched/orbit"
)

// GangFix is a change after which a gang fits that does not fit now: the members that bring all roles to their minimums
// are placed together, in one domain. It is minimal as far as the planner of [ExplainGang] can tell: no part of the
// change and no smaller amount is enough. Each fix has been tried: the proposal of [GangFix.Proposal] commits on the
// state that was explained. It is read-only.
type GangFix struct {
	// Role is the role whose request changes; empty: the request stays as it is.
	Role string
	// Less is by how much the request of each member of Role must be smaller; at most one dimension is not 0.
	Less orbit.Resources
	// LessExtra is an extra and by how much the request of each member of Role must be smaller; Amount 0: no change.
	LessExtra orbit.Extra
	// FewerDevices is by how many device instances the request of each member of Role must be smaller.
	FewerDevices int
	// Drop has the requirement that must be removed from the spec of Role; empty: none.
	Drop []orbit.Predicate
	// FewerMembers is by how much the minimum of Role must be lower, or that of the gang if Role is empty. The gang then
	// starts without these members, which may follow later.
	FewerMembers int
	// Uncordon are cordoned nodes that must become schedulable.
	Uncordon []orbit.NodeID
	// Await are holds that have to end first, the soonest first.
	Await []orbit.Hold
	// Until is when the last hold in Await ends; zero: there are none.
	Until time.Time
	// Evict are the victims that must be evicted. The ledger allows it: they have a lower priority, or are in a broken gang
	// that gives way to this one ([orbit.State.Precedes]), and no disruption budget and no gang is broken by it.
	Evict []orbit.CapsuleID
	// Add are empty nodes that have to join in Domain. Each is a copy of the node Like, except for its id and the label
	// Level.
	Add []*orbit.Node
	// Like is the existing node that the nodes in Add are copies of; empty if Add is empty.
	Like orbit.NodeID
	// Level and Domain are the topology domain in which the gang fits after the fix; both are empty for all nodes
	// together.
	Level, Domain string
	// New says that Domain is a made-up name for a domain without nodes; any other new name serves as well.
	New bool
	// Gang is the gang after the fix: the one that was explained, unless its request changes.
	Gang *orbit.Gang

	// Some victims give way although they do not have a lower priority.
	giveWay bool

	before []orbit.Commitment
	evicts []orbit.Commitment
	places []orbit.Commitment
	at     *gangPlace
	state  *orbit.State // for the words of amounts
}

// Proposal returns a proposal that carries out the fix and places the members. If the gang's request changes, the
// proposal releases the gang for good and submits it again under the same ids, which loses its turn in the queue. The
// proposal ends the holds in Await at once. To wait for their end instead, do not propose it.
func (f *GangFix) Proposal() orbit.Proposal {
	return orbit.Proposal{Do: slices.Concat(f.before, f.evicts, f.places)}
}

// String completes "it would fit if you ...".
func (f *GangFix) String() string {
	role := fmt.Sprintf("role %q", f.Role)
	var text string
	switch {
	case len(f.Uncordon) > 0:
		text = "uncordon " + nodesText(f.Uncordon)
	case len(f.Await) > 0:
		text = fmt.Sprintf("wait for %d holds until %s, %q the last of them", len(f.Await), f.Until.UTC().Format(time.RFC3339), f.Await[len(f.Await)-1].ID)
		if len(f.Await) == 1 {
			text = fmt.Sprintf("wait for hold %q until %s", f.Await[0].ID, f.Until.UTC().Format(time.RFC3339))
		}
	case f.giveWay && len(f.Evict) == 1:
		text = fmt.Sprintf("evict %q, whose gang runs below its minimum too and comes after it", f.Evict[0])
	case f.giveWay:
		text = fmt.Sprintf("evict %d capsules of gangs that run below their minimums too and come after it, %q among them", len(f.Evict), f.Evict[0])
	case len(f.Evict) == 1:
		text = fmt.Sprintf("evict %q, which has a lower priority", f.Evict[0])
	case len(f.Evict) > 1:
		text = fmt.Sprintf("evict %d capsules of lower priority, %q among them", len(f.Evict), f.Evict[0])
	case len(f.Add) == 1:
		text = fmt.Sprintf("add a node like %s", f.Like)
	case len(f.Add) > 1:
		text = fmt.Sprintf("add %d nodes like %s", len(f.Add), f.Like)
	case f.LessExtra.Amount > 0:
		text = lessText(fmt.Sprintf("%d of %q", f.LessExtra.Amount, f.LessExtra.Name), amountOf(f.cut().Extras, f.LessExtra.Name), strconv.Quote(f.LessExtra.Name)) + " in " + role
	case f.FewerDevices > 0 && f.cut().Devices.Count == 0:
		text = "ask for no devices in " + role
	case f.FewerDevices > 0:
		text = fmt.Sprintf("ask for %d fewer devices in %s", f.FewerDevices, role)
	case len(f.Drop) > 0:
		text = fmt.Sprintf("drop the requirement %s of %s", f.Drop[0], role)
	case f.FewerMembers > 0 && f.Role == "":
		text = fmt.Sprintf("begin with %d fewer members in all", f.FewerMembers)
	case f.FewerMembers > 0:
		text = fmt.Sprintf("begin with %d fewer members of %s", f.FewerMembers, role)
	}
	state := cmp.Or(f.state, &orbit.State{})
	for d, less := range f.Less {
		if less > 0 {
			text = lessText(state.Quantity(d, less), f.cut().Envelope.Reservation[d], state.DimensionName(d)) + " in " + role
		}
	}
	switch {
	case f.Level == "":
		return text
	case f.New:
		return fmt.Sprintf("%s in a new %s", text, f.Level)
	}
	return fmt.Sprintf("%s: then it fits in %s %s", text, f.Level, f.Domain)
}

// cut returns the spec of Role after the fix.
func (f *GangFix) cut() *orbit.Spec {
	i := slices.IndexFunc(f.Gang.Roles, func(r orbit.Role) bool { return r.Name == f.Role })
	return f.Gang.Roles[i].Spec
}

// nodesText lists the ids of nodes, at most listed of them.
func nodesText(ids []orbit.NodeID) string {
	if len(ids) == 1 {
		return "node " + string(ids[0])
	}
	names := make([]string, min(len(ids), listed))
	for i := range names {
		names[i] = string(ids[i])
	}
	text := fmt.Sprintf("%d nodes: %s", len(ids), strings.Join(names, ", "))
	if more := len(ids) - listed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
