package inspect

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/orbitsched/orbit"
)

// mostCapsules limits the capsules that are listed for a node, and mostMembers the nodes that are listed for a cell.
const (
	mostCapsules = 200
	mostMembers  = 500
)

// nodeDetail describes one node and what is on it.
type nodeDetail struct {
	ID       orbit.NodeID      `json:"id"`
	State    string            `json:"state"`
	Labels   map[string]string `json:"labels,omitempty"`
	Revision orbit.Revision    `json:"revision"`
	Rows     []usage           `json:"rows"`
	// Devices has, for each device of the node, the free thousandths of it, or -1 if it is unhealthy.
	Devices     []int          `json:"devices,omitempty"`
	Model       string         `json:"model,omitempty"`
	Count       int            `json:"count"`
	Capsules    []occupant     `json:"capsules"`
	More        int            `json:"more,omitempty"`
	Leaving     []leaving      `json:"leaving,omitempty"`
	Holds       []orbit.HoldID `json:"holds,omitempty"`
	Nominations []nomination   `json:"nominations,omitempty"`
	Trouble     *trouble       `json:"trouble,omitempty"`
}

// usage is what a node has of one dimension, and how much of it is used.
type usage struct {
	Name     string `json:"name"`
	Unit     string `json:"unit,omitempty"`
	Capacity int64  `json:"capacity"`
	Used     int64  `json:"used"`
}

// occupant is a capsule on a node.
type occupant struct {
	ID       orbit.CapsuleID `json:"id"`
	Module   string          `json:"module,omitempty"`
	Class    string          `json:"class"`
	Priority int32           `json:"priority"`
	Gang     orbit.GangID    `json:"gang,omitempty"`
	Asks     []amount        `json:"asks,omitempty"`
	Placed   orbit.Revision  `json:"placed"`
	Waits    bool            `json:"waits,omitempty"`
}

// leaving is a capsule that has left a node and still runs there.
type leaving struct {
	Capsule orbit.CapsuleID `json:"capsule"`
	Left    orbit.Revision  `json:"left"`
}

// serveNode answers with the details of the node that the request names.
func (h *Handler) serveNode(w http.ResponseWriter, r *http.Request) {
	state, old := h.snapshot(w, r)
	if state == nil {
		return
	}
	id := orbit.NodeID(r.URL.Query().Get("id"))
	n := state.Node(id)
	if n == nil {
		fail(w, http.StatusNotFound, "there is no such node; it may have left")
		return
	}
	d := describeNode(state, n)
	d.Trouble = old
	answer(w, d)
}

func describeNode(state *orbit.State, n *orbit.NodeState) nodeDetail {
	d := nodeDetail{ID: n.Node.ID, State: n.Node.State.String(), Labels: n.Node.Labels, Revision: max(n.Usage, n.Specification),
		Model: n.Node.Devices.Model, Count: n.Capsules, Rows: []usage{}, Capsules: []occupant{}}
	used := n.Used()
	for i, capacity := range n.Node.Capacity {
		if capacity != 0 || used[i] != 0 {
			name, unit := dimensionName(state, i)
			d.Rows = append(d.Rows, usage{name, unit, capacity, used[i]})
		}
	}
	for i := range n.Node.Devices.Count {
		free := -1
		if !n.Node.Devices.Unhealthy.Has(i) {
			free = n.DeviceFree(i)
		}
		d.Devices = append(d.Devices, free)
	}
	for c := range state.On(n.Node.ID) {
		if len(d.Capsules) == mostCapsules {
			d.More = n.Capsules - mostCapsules
			break
		}
		d.Capsules = append(d.Capsules, occupant{c.ID, c.Spec.Module, c.Spec.Class.String(), c.Spec.Priority, c.Gang(), asks(state, c.Spec), c.PlacedAt, c.Waits})
	}
	for left := range state.Remains(n.Node.ID) {
		if len(d.Leaving) == mostRows {
			break
		}
		d.Leaving = append(d.Leaving, leaving{left.Capsule, left.Left})
	}
	if n.Holds() > 0 {
		for hold := range state.Holds() {
			if hold.Node == n.Node.ID && len(d.Holds) < mostRows {
				d.Holds = append(d.Holds, hold.ID)
			}
		}
	}
	for of := range n.Nominated {
		d.Nominations = append(d.Nominations, nomination{Capsule: of.Capsule, Gang: of.Gang, Rank: of.Rank, Nodes: []orbit.NodeID{n.Node.ID}, Ends: of.Ends.UnixMilli()})
	}
	return d
}

// serveNodes answers with the nodes of a cell of the overview. The request has the fields of the cell: its zone, its
// first rack, its last rack if the cell is merged, its first node if it has one, and the number of its nodes. If the
// request has no zone, nodes of all zones are selected.
func (h *Handler) serveNodes(w http.ResponseWriter, r *http.Request) {
	state, old := h.snapshot(w, r)
	if state == nil {
		return
	}
	ask := r.URL.Query()
	from, to := ask.Get("rack"), ask.Get("to")
	if to == "" {
		to = from
	}
	first := orbit.NodeID(ask.Get("first"))
	zoneLabel, rackLabel := h.labels()
	s := survey{}
	out := struct {
		Dimensions []string `json:"dimensions"`
		Nodes      []member `json:"nodes"`
		More       int      `json:"more,omitempty"`
		Trouble    *trouble `json:"trouble,omitempty"`
	}{Nodes: []member{}, Dimensions: []string{}, Trouble: old}
	var found []*orbit.NodeState
	for n := range state.Nodes() {
		s.sums.add(n)
		rack := n.Node.Labels[rackLabel]
		inZone := !ask.Has("zone") || n.Node.Labels[zoneLabel] == ask.Get("zone")
		if inZone && natural(from, rack) <= 0 && natural(rack, to) <= 0 && (rack != from || n.Node.ID >= first) {
			found = append(found, n)
		}
	}
	most := mostMembers
	if n, err := strconv.Atoi(ask.Get("count")); err == nil && n > 0 {
		most = min(most, n)
	}
	slices.SortStableFunc(found, func(a, b *orbit.NodeState) int { return natural(a.Node.Labels[rackLabel], b.Node.Labels[rackLabel]) })
	shown := s.shown()
	for _, d := range shown {
		name, _ := dimensionName(state, d)
		out.Dimensions = append(out.Dimensions, name)
	}
	for i, n := range found {
		if i == most {
			out.More = len(found) - most
			break
		}
		out.Nodes = append(out.Nodes, memberOf(n, shown))
	}
	answer(w, out)
}
