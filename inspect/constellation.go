package inspect

import (
	"cmp"
	"maps"
	"slices"

	"github.com/orbitsched/orbit"
)

// These limits bound the size of the overview, so that the page works on a phone with 50,000 nodes.
const (
	// mostShown is the largest number of nodes for which the overview lists each node. With more nodes it lists none.
	mostShown = 400
	// mostCells is roughly the largest number of cells in the overview. With more cells, the overview merges
	// neighbours.
	mostCells = 1500
	// mostInCell is the largest number of nodes in an unmerged cell. A rack with more nodes is split into several
	// cells.
	mostInCell = 64
	// mostZones is the largest number of zones in the overview. If the zone label has more values, it is not useful for
	// grouping, and the overview shows all nodes in one zone.
	mostZones = 64
)

// overview summarises the constellation at one revision.
type overview struct {
	Revision orbit.Revision `json:"revision"`
	// Trouble is why the ledger can commit nothing at present; empty: it can, or does not say.
	Trouble    string      `json:"trouble,omitempty"`
	Dimensions []dimension `json:"dimensions"`
	Nodes      conditions  `json:"nodes"`
	Placed     int         `json:"placed"`
	Pending    int         `json:"pending"`
	ZoneLabel  string      `json:"zoneLabel"`
	RackLabel  string      `json:"rackLabel"`
	Zones      []zone      `json:"zones"`
}

// dimension describes a resource that some node has: its capacity and its use, summed over all nodes that are not lost.
type dimension struct {
	Name     string  `json:"name"`
	Unit     string  `json:"unit,omitempty"`
	Capacity float64 `json:"capacity"`
	Used     float64 `json:"used"`
	// Free is what is free on ready nodes.
	Free float64 `json:"free"`
}

// conditions counts nodes by their state.
type conditions struct {
	Ready    int `json:"ready"`
	Cordoned int `json:"cordoned,omitempty"`
	Lost     int `json:"lost,omitempty"`
}

func (c *conditions) add(o conditions) {
	c.Ready += o.Ready
	c.Cordoned += o.Cordoned
	c.Lost += o.Lost
}

func (c *conditions) all() int { return c.Ready + c.Cordoned + c.Lost }

// zone describes the nodes that have one value of the zone label. If All is set, it describes all nodes.
type zone struct {
	Name  string     `json:"name"`
	All   bool       `json:"all,omitempty"`
	Nodes conditions `json:"nodes"`
	Fill  fill       `json:"fill"`
	Cells []cell     `json:"cells"`
}

// cell describes a rack, a part of a rack, or several neighbouring racks or parts.
type cell struct {
	Rack string `json:"rack"`
	// To is the last rack of a merged cell. It is empty if the cell is not merged.
	To string `json:"to,omitempty"`
	// First is the first node of the cell if the cell begins in the middle of a rack. It is empty if the cell begins
	// with the first node of the rack.
	First    orbit.NodeID `json:"first,omitempty"`
	Nodes    conditions   `json:"nodes"`
	Capsules int          `json:"capsules"`
	Fill     fill         `json:"fill"`
	// Members lists the nodes of the cell. It is empty if the constellation has more than mostShown nodes.
	Members []member `json:"members,omitempty"`
	sums    sums
}

// member summarises one node.
type member struct {
	ID       orbit.NodeID `json:"id"`
	State    string       `json:"state,omitempty"`
	Capsules int          `json:"capsules"`
	Fill     fill         `json:"fill"`
}

// fill has, for each dimension of the overview, the share of the capacity that is used, in thousandths. A value is
// above 1000 if more is used than there is, for example because the capacity was lowered.
type fill []int

// sums adds up resources of many nodes, one element per dimension. The last element is for devices, in thousandths of a
// device. The elements are floats, because sums of integers could overflow.
type sums struct{ capacity, used [orbit.Dimensions + 1]float64 }

func (s *sums) add(n *orbit.NodeState) {
	if n.Node.State == orbit.Lost {
		return
	}
	used := n.Used()
	for d := range used {
		s.capacity[d] += float64(n.Node.Capacity[d])
		s.used[d] += float64(used[d])
	}
	if n.Node.Devices.Count > 0 {
		all, free := devicesOf(n)
		s.capacity[orbit.Dimensions] += float64(all)
		s.used[orbit.Dimensions] += float64(all - free)
	}
}

func (s *sums) plus(o *sums) {
	for d := range s.used {
		s.capacity[d] += o.capacity[d]
		s.used[d] += o.used[d]
	}
}

// fill returns the used share of each dimension that is shown.
func (s *sums) fill(shown []int) fill {
	out := make(fill, len(shown))
	for i, d := range shown {
		if s.capacity[d] > 0 {
			out[i] = int(1000 * s.used[d] / s.capacity[d])
		}
	}
	return out
}

// devicesOf returns the healthy devices of a node and how much of them is free, both in thousandths of a device.
func devicesOf(n *orbit.NodeState) (all, free int) {
	for i := range n.Node.Devices.Count {
		if !n.Node.Devices.Unhealthy.Has(i) {
			all += 1000
			free += n.DeviceFree(i)
		}
	}
	return all, free
}

// survey collects the data for an overview in one pass over the nodes.
type survey struct {
	zoneLabel, rackLabel string
	all                  bool
	zones                map[string]map[string][]*cell
	nodes                conditions
	placed               int
	sums                 sums
	free                 [orbit.Dimensions + 1]float64
}

// sick returns why the ledger can commit nothing; empty: it can, or does not say.
func (h *Handler) sick() string {
	if err := orbit.HealthOf(h.Ledger); err != nil {
		return textOf(err)
	}
	return ""
}

// makeOverview computes the overview of a state. If the zone label has too many values, it puts all nodes in one zone.
func (h *Handler) makeOverview(state *orbit.State) *overview {
	few := state.NodeCount() <= mostShown
	s, members := h.survey(state, false, few)
	if len(s.zones) > mostZones {
		s, members = h.survey(state, true, few)
	}
	o := &overview{Revision: state.Revision(), Trouble: h.sick(), Nodes: s.nodes, Placed: s.placed, Pending: state.PendingCount(), ZoneLabel: s.zoneLabel, RackLabel: s.rackLabel}
	shown := s.shown()
	for _, d := range shown {
		name, unit := dimensionName(state, d)
		o.Dimensions = append(o.Dimensions, dimension{name, unit, s.sums.capacity[d], s.sums.used[d], s.free[d]})
	}
	o.Zones = s.list(shown)
	for z := range o.Zones {
		for i := range o.Zones[z].Cells {
			c := &o.Zones[z].Cells[i]
			for _, n := range members[s.source(o.Zones[z].Name, c)] {
				c.Members = append(c.Members, memberOf(n, shown))
			}
		}
	}
	return o
}

// labels returns the node labels that hold the zone and the rack.
func (h *Handler) labels() (zone, rack string) { return cmp.Or(h.Zone, "zone"), cmp.Or(h.Rack, "rack") }

// survey collects all nodes of a state. If all is set, it puts them in one zone. If few is set, it also returns the
// nodes of each cell.
func (h *Handler) survey(state *orbit.State, all, few bool) (*survey, map[*cell][]*orbit.NodeState) {
	s := &survey{all: all, zones: map[string]map[string][]*cell{}}
	s.zoneLabel, s.rackLabel = h.labels()
	members := map[*cell][]*orbit.NodeState{}
	for n := range state.Nodes() {
		if c := s.add(n); few {
			members[c] = append(members[c], n)
		}
	}
	return s, members
}

// source returns the cell of the survey from which the list made c. For a merged cell it is the first of the merged
// cells.
func (s *survey) source(zone string, c *cell) *cell {
	for _, of := range s.zones[zone][c.Rack] {
		if of.First == c.First {
			return of
		}
	}
	return nil
}

// add adds a node to the survey and returns the cell of the node.
func (s *survey) add(n *orbit.NodeState) *cell {
	name := ""
	if !s.all {
		name = n.Node.Labels[s.zoneLabel]
	}
	racks := s.zones[name]
	if racks == nil {
		racks = map[string][]*cell{}
		s.zones[name] = racks
	}
	rack := n.Node.Labels[s.rackLabel]
	cells := racks[rack]
	if len(cells) == 0 || cells[len(cells)-1].Nodes.all() == mostInCell {
		c := &cell{Rack: rack}
		if len(cells) > 0 {
			c.First = n.Node.ID
		}
		cells = append(cells, c)
		racks[rack] = cells
	}
	c := cells[len(cells)-1]
	one := conditionsOf(n)
	c.Nodes.add(one)
	c.Capsules += n.Capsules
	c.sums.add(n)
	s.nodes.add(one)
	s.placed += n.Capsules
	s.sums.add(n)
	if n.Node.Schedulable() {
		for d, x := range n.Free() {
			s.free[d] += float64(max(0, x))
		}
		_, free := devicesOf(n)
		s.free[orbit.Dimensions] += float64(free)
	}
	return c
}

func conditionsOf(n *orbit.NodeState) conditions {
	switch n.Node.State {
	case orbit.Cordoned:
		return conditions{Cordoned: 1}
	case orbit.Lost:
		return conditions{Lost: 1}
	}
	return conditions{Ready: 1}
}

func memberOf(n *orbit.NodeState, shown []int) member {
	var own sums
	own.add(n)
	m := member{ID: n.Node.ID, Capsules: n.Capsules, Fill: own.fill(shown)}
	if n.Node.State != orbit.Ready {
		m.State = n.Node.State.String()
	}
	return m
}

// shown returns, in ascending order, the dimensions in which the capacity or the use of some node is not zero. Devices
// come last.
func (s *survey) shown() (out []int) {
	for d := range s.sums.capacity {
		if s.sums.capacity[d] > 0 || s.sums.used[d] > 0 {
			out = append(out, d)
		}
	}
	return out
}

// dimensionName returns the name and the unit of a dimension of sums.
func dimensionName(state *orbit.State, d int) (name, unit string) {
	if d == orbit.Dimensions {
		return "devices", "milli"
	}
	return state.DimensionName(d), [orbit.Dimensions]string{orbit.CPU: "milli", orbit.Memory: "bytes", orbit.Disk: "bytes"}[d]
}

// list returns the zones and their cells in natural order. If there are more than mostCells cells, it merges
// neighbouring cells within each zone.
func (s *survey) list(shown []int) (out []zone) {
	cells := 0
	for _, racks := range s.zones {
		for _, parts := range racks {
			cells += len(parts)
		}
	}
	together := (cells + mostCells - 1) / mostCells
	for _, name := range slices.SortedFunc(maps.Keys(s.zones), natural) {
		z, total := zone{Name: name, All: s.all}, sums{}
		var last *cell
		run := 0
		for _, rack := range slices.SortedFunc(maps.Keys(s.zones[name]), natural) {
			for _, part := range s.zones[name][rack] {
				z.Nodes.add(part.Nodes)
				total.plus(&part.sums)
				if run++; last == nil || run > together {
					z.Cells = append(z.Cells, *part)
					last, run = &z.Cells[len(z.Cells)-1], 1
					continue
				}
				last.To = rack
				last.Nodes.add(part.Nodes)
				last.Capsules += part.Capsules
				last.sums.plus(&part.sums)
			}
		}
		for i := range z.Cells {
			z.Cells[i].Fill = z.Cells[i].sums.fill(shown)
		}
		z.Fill = total.fill(shown)
		out = append(out, z)
	}
	return out
}

// natural compares names and treats runs of digits as numbers, so that r2 comes before r10.
func natural(a, b string) int {
	for a != "" && b != "" {
		x, restA := chunk(a)
		y, restB := chunk(b)
		order := cmp.Compare(x, y)
		if digit(x[0]) && digit(y[0]) {
			order = cmp.Or(cmp.Compare(len(trim(x)), len(trim(y))), cmp.Compare(trim(x), trim(y)), order)
		}
		if order != 0 {
			return order
		}
		a, b = restA, restB
	}
	return cmp.Compare(len(a), len(b))
}

// chunk splits a string, which must not be empty, after its first run of digits or of other characters.
func chunk(s string) (front, rest string) {
	i := 1
	for i < len(s) && digit(s[i]) == digit(s[0]) {
		i++
	}
	return s[:i], s[i:]
}

func digit(c byte) bool { return '0' <= c && c <= '9' }

// trim removes leading zeros but keeps the last digit.
func trim(digits string) string {
	for len(digits) > 1 && digits[0] == '0' {
		digits = digits[1:]
	}
	return digits
}
