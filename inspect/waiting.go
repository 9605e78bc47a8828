package inspect

import (
	"cmp"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
)

// mostRows is how many entries each list of a frame has at most.
const mostRows = 60

// backlog describes the capsules that wait to be placed, and those that are placed and wait to begin.
type backlog struct {
	Pending int            `json:"pending"`
	Classes map[string]int `json:"classes"`
	Rows    []waiting      `json:"rows"`
	// More counts the rows that are not listed.
	More    int       `json:"more,omitempty"`
	Blocked []blocked `json:"blocked"`
	// MoreBlocked counts the blocked capsules that are not listed.
	MoreBlocked int `json:"moreBlocked,omitempty"`
	// Failing are the nodes on which most starts have failed within the last five minutes.
	Failing []failing `json:"failing"`
}

// failing is a node on which most starts have failed lately: so many of so many.
type failing struct {
	Node   orbit.NodeID `json:"node"`
	Failed int          `json:"failed"`
	Of     int          `json:"of"`
}

// listFailing lists the nodes on which most starts have failed lately, those with the most failures first.
func listFailing(state *orbit.State) []failing {
	list := []failing{}
	for n, starts := range state.Starts(time.Now()) {
		if 2*starts.Failed > starts.Of {
			list = append(list, failing{n.Node.ID, starts.Failed, starts.Of})
		}
	}
	slices.SortFunc(list, func(a, b failing) int {
		return cmp.Or(cmp.Compare(b.Failed, a.Failed), cmp.Compare(a.Node, b.Node))
	})
	return list[:min(len(list), mostRows)]
}

// blocked is a placed capsule that may not begin until another has stopped, which may be the capsule itself on a former
// node.
type blocked struct {
	Capsule orbit.CapsuleID `json:"capsule"`
	Gang    orbit.GangID    `json:"gang,omitempty"`
	Node    orbit.NodeID    `json:"node"`
	// For is the capsule that has to stop, and On the node that it has left.
	For orbit.CapsuleID `json:"for"`
	On  orbit.NodeID    `json:"on"`
	// Since is when Capsule was placed, in milliseconds since 1970, or 0 if that is unknown.
	Since int64 `json:"since,omitempty"`
}

// listBlocked lists the placed capsules that may not begin, those that were placed first first, and counts those that it
// leaves out.
func listBlocked(state *orbit.State) ([]blocked, int) {
	var all []*orbit.Capsule
	waits := map[orbit.CapsuleID]*orbit.Remains{}
	for c, r := range state.Waiting() {
		all = append(all, c)
		waits[c.ID] = r
	}
	slices.SortFunc(all, func(a, b *orbit.Capsule) int {
		return cmp.Or(cmp.Compare(a.PlacedAt, b.PlacedAt), cmp.Compare(a.ID, b.ID))
	})
	all, more := first(all)
	list := []blocked{}
	for _, c := range all {
		r := waits[c.ID]
		list = append(list, blocked{c.ID, c.Gang(), c.Node, r.Capsule, r.Node, millis(c.PlaceTime)})
	}
	return list, more
}

// waiting is a row of the backlog. It describes the waiting capsules with one spec and owner, or those of one gang.
type waiting struct {
	// Capsule is the capsule of the row that was submitted first.
	Capsule  orbit.CapsuleID `json:"capsule"`
	Gang     orbit.GangID    `json:"gang,omitempty"`
	Module   string          `json:"module,omitempty"`
	Class    string          `json:"class"`
	Queue    orbit.QueueID   `json:"queue,omitempty"`
	Priority int32           `json:"priority"`
	Owner    string          `json:"owner,omitempty"`
	Count    int             `json:"count"`
	Asks     []amount        `json:"asks,omitempty"`
	// Since is when Capsule was submitted, in milliseconds since 1970, or 0 if that is unknown.
	Since int64 `json:"since,omitempty"`
	// Nominated says that a capsule of the row, or its gang, has a live nomination.
	Nominated bool `json:"nominated,omitempty"`
	// Kind and Why are why Capsule waits, in one word and in words; Engine names the engine for which it waits.
	Kind   orbit.WaitKind `json:"kind"`
	Why    string         `json:"why"`
	Engine string         `json:"engine,omitempty"`
}

// amount is an amount of one dimension.
type amount struct {
	Name   string `json:"name"`
	Unit   string `json:"unit,omitempty"`
	Amount int64  `json:"amount"`
}

func amounts(state *orbit.State, r *orbit.Resources) (out []amount) {
	for d, x := range r {
		if x != 0 {
			name, unit := dimensionName(state, d)
			out = append(out, amount{name, unit, x})
		}
	}
	return out
}

func asks(state *orbit.State, spec *orbit.Spec) []amount {
	out := amounts(state, &spec.Envelope.Reservation)
	if d := &spec.Devices; d.Count > 0 {
		out = append(out, amount{"devices", "milli", int64(d.Count * d.Milli)})
	}
	return out
}

// alike identifies a row of the backlog: waiting capsules with equal values are in the same row.
type alike struct {
	gang  orbit.GangID
	spec  *orbit.Spec
	owner string
}

func alikeOf(c *orbit.Capsule) alike {
	if c.Gang() != "" {
		return alike{gang: c.Gang(), owner: c.Owner()}
	}
	return alike{spec: c.Spec, owner: c.Owner()}
}

// row is one row of the backlog.
type row struct {
	first     *orbit.Capsule
	count     int
	nominated bool
	// wait says why first waits.
	wait orbit.BacklogRow
}

// makeWaiting groups the waiting capsules into rows and lists the rows of the highest priority, and among those the
// oldest, first.
func (h *Handler) makeWaiting(state *orbit.State) *backlog {
	q := &backlog{Pending: state.PendingCount(), Classes: map[string]int{}, Rows: []waiting{}}
	byKey := map[alike]*row{}
	var rows []*row
	for _, b := range orbit.Backlog(state, h.log.known()...) {
		q.Classes[b.Capsules[0].Spec.Class.String()] += len(b.Capsules)
		key := alikeOf(b.Capsules[0])
		r := byKey[key]
		if r == nil {
			r = &row{first: b.Capsules[0], wait: b}
			byKey[key] = r
			rows = append(rows, r)
		}
		r.count += len(b.Capsules)
		r.nominated = r.nominated || slices.ContainsFunc(b.Capsules, func(c *orbit.Capsule) bool { return c.Nomination().Lives() })
	}
	rows, q.More = first(rows)
	for _, r := range rows {
		q.Rows = append(q.Rows, r.describe(state))
	}
	q.Blocked, q.MoreBlocked = listBlocked(state)
	q.Failing = listFailing(state)
	return q
}

// describe returns the row in the form that the page shows. Making the reason's text may take a look at every node, the
// first time.
func (r *row) describe(state *orbit.State) waiting {
	c := r.first
	w := waiting{
		Capsule: c.ID, Gang: c.Gang(), Module: c.Spec.Module, Class: c.Spec.Class.String(), Queue: c.Spec.Queue, Priority: c.Spec.Priority, Owner: c.Owner(),
		Count: r.count, Asks: asks(state, c.Spec), Since: millis(c.SubmitTime()), Nominated: r.nominated, Kind: r.wait.Kind, Why: textOf(r.wait.Why),
	}
	if e := r.wait.Engine; e != nil {
		w.Engine = clip(e.Name)
	} else {
		w.Why = "none of the engines that have passed so far plans it: " + w.Why
	}
	if g := state.Gang(c.Gang()); g != nil {
		w.Nominated = w.Nominated || g.Nomination.Lives()
	}
	return w
}

// millis returns an instant in milliseconds since 1970.
func millis(i orbit.Instant) int64 { return int64(i) / 1e6 }

// rules lists budgets, domains that break a rule [orbit.Even], holds and nominations.
type rules struct {
	Budgets         []budget     `json:"budgets"`
	MoreBudgets     int          `json:"moreBudgets,omitempty"`
	Skewed          []skewed     `json:"skewed"`
	MoreSkewed      int          `json:"moreSkewed,omitempty"`
	Holds           []hold       `json:"holds"`
	MoreHolds       int          `json:"moreHolds,omitempty"`
	Nominations     []nomination `json:"nominations"`
	MoreNominations int          `json:"moreNominations,omitempty"`
}

// budget describes a budget, and counts its healthy members and those that it can spare.
type budget struct {
	ID       orbit.BudgetID `json:"id"`
	Group    string         `json:"group,omitempty"`
	Module   string         `json:"module,omitempty"`
	Expected int            `json:"expected"`
	Healthy  int            `json:"healthy"`
	Spare    int            `json:"spare"`
}

// skewed is a domain that has more members of a group than a rule [orbit.Even] allows.
type skewed struct {
	Group   string `json:"group"`
	Level   string `json:"level"`
	Domain  string `json:"domain"`
	Members int    `json:"members"`
	Fewest  int    `json:"fewest"`
	MaxSkew int    `json:"maxSkew"`
}

// excess returns by how many members the domain exceeds what the rule allows.
func (s *skewed) excess() int { return s.Members - s.Fewest - s.MaxSkew }

// listSkewed lists the domains that exceed what a rule allows by most, and counts those that it leaves out. Specs with
// the same rule share a row.
func listSkewed(state *orbit.State) ([]skewed, int) {
	list, seen := []skewed{}, map[skewed]bool{}
	for s := range state.Skewed() {
		row := skewed{s.Even.Group, s.Even.Level, s.Domain, s.Members, s.Fewest, s.Even.MaxSkew}
		if !seen[row] {
			seen[row] = true
			list = append(list, row)
		}
	}
	slices.SortStableFunc(list, func(a, b skewed) int { return cmp.Compare(b.excess(), a.excess()) })
	return first(list)
}

// hold describes room that is kept free on a node.
type hold struct {
	ID   orbit.HoldID `json:"id"`
	Node orbit.NodeID `json:"node"`
	For  string       `json:"for,omitempty"`
	Room []amount     `json:"room,omitempty"`
	Ends int64        `json:"ends"`
}

// nomination is a first claim on room that becomes free.
type nomination struct {
	Capsule orbit.CapsuleID `json:"capsule,omitempty"`
	Gang    orbit.GangID    `json:"gang,omitempty"`
	Rank    int32           `json:"rank"`
	Nodes   []orbit.NodeID  `json:"nodes"`
	More    int             `json:"more,omitempty"`
	Ends    int64           `json:"ends"`
}

// makeRules lists the budgets that can spare the fewest members, the domains that exceed a rule by most, the holds that
// end first, and the nominations of the highest rank.
func makeRules(state *orbit.State) *rules {
	r := &rules{Budgets: []budget{}, Holds: []hold{}, Nominations: []nomination{}}
	for b := range state.Budgets() {
		r.Budgets = append(r.Budgets, budget{b.Budget.ID, b.Budget.Group, b.Budget.Module, b.Budget.Expected, b.Healthy, b.Spare()})
	}
	slices.SortStableFunc(r.Budgets, func(a, b budget) int { return cmp.Compare(a.Spare, b.Spare) })
	r.Budgets, r.MoreBudgets = first(r.Budgets)
	r.Skewed, r.MoreSkewed = listSkewed(state)
	var holds []orbit.Hold
	for h := range state.Holds() {
		holds = append(holds, h)
	}
	slices.SortStableFunc(holds, func(a, b orbit.Hold) int { return a.Ends.Compare(b.Ends) })
	holds, r.MoreHolds = first(holds)
	for i := range holds {
		h := &holds[i]
		r.Holds = append(r.Holds, hold{h.ID, h.Node, h.For, amounts(state, &h.Room), h.Ends.UnixMilli()})
	}
	for n := range state.Nominations() { // highest rank first
		if len(r.Nominations) == mostRows {
			r.MoreNominations++
			continue
		}
		out := nomination{Capsule: n.Capsule, Gang: n.Gang, Rank: n.Rank, Nodes: []orbit.NodeID{}, Ends: n.Ends.UnixMilli()}
		for i := range n.Parts {
			if i == 8 {
				out.More = len(n.Parts) - i
				break
			}
			out.Nodes = append(out.Nodes, n.Parts[i].Node)
		}
		r.Nominations = append(r.Nominations, out)
	}
	return r
}

// first returns the first mostRows entries of a list and the number of entries that it leaves out.
func first[T any](list []T) (out []T, more int) {
	n := min(len(list), mostRows)
	return list[:n], len(list) - n
}
