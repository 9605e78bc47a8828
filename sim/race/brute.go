package race

import (
	"fmt"
	"slices"
	"strings"

	"github.com/orbitsched/orbit"
)

// This file decides by brute force what fits. It counts the free capacity of each node again, capsule by capsule, and
// tries all ways to place a gang. It shares no code with engines, navigators and ledgers except the matching of labels
// and taints.

// room is the free capacity of a node.
type room struct {
	*orbit.Node
	free orbit.Resources
	// milli is the free part of each device instance, in milli; 0 for an unhealthy one.
	milli []int
	// extras is what is free of each extra.
	extras map[string]int64
	// groups are the groups with members on the node. claimed says that a group has members or an Anchor's hold on the
	// node.
	groups  []string
	claimed bool
	// report is the newest report of the node; heard says that there is one.
	report orbit.Report
	heard  bool
}

// roomsOf returns the free capacity of all nodes.
func roomsOf(state *orbit.State) (rooms []room) {
	at := map[orbit.NodeID]int{}
	for n := range state.Nodes() {
		at[n.Node.ID] = len(rooms)
		rooms = append(rooms, emptyRoom(n.Node))
	}
	for c := range state.Capsules() {
		if c.Node == "" {
			continue
		}
		r := &rooms[at[c.Node]]
		r.take(c.Spec, c.Devices)
		for group := range c.Spec.MemberOf {
			r.groups, r.claimed = append(r.groups, group), true
		}
	}
	for i := range rooms {
		for gone := range state.Remains(rooms[i].ID) { // what has left keeps its extras until it has stopped
			rooms[i].takeExtras(gone.Spec, 1)
		}
	}
	for h := range state.Holds() {
		r := &rooms[at[h.Node]]
		hold := orbit.Spec{Envelope: orbit.Envelope{Reservation: h.Room}, Devices: orbit.DeviceRequest{Milli: h.Milli}}
		r.take(&hold, h.Devices)
		r.claimed = r.claimed || strings.HasPrefix(string(h.ID), "plan/anchor/")
	}
	return rooms
}

// emptyRoom returns the room of a node on which nothing runs.
func emptyRoom(n *orbit.Node) room {
	r := room{Node: n, free: n.Capacity, milli: make([]int, n.Devices.Count), extras: map[string]int64{}}
	for _, x := range n.Extras {
		r.extras[x.Name] = x.Amount
	}
	for i := range r.milli {
		if n.Devices.Unhealthy&(1<<i) == 0 {
			r.milli[i] = 1000
		}
	}
	return r
}

// take subtracts the demand of a capsule with this spec on these device instances.
func (r *room) take(spec *orbit.Spec, set orbit.DeviceSet) {
	for d, want := range spec.Envelope.Reservation {
		r.free[d] -= want
	}
	for i := range r.milli {
		if set&(1<<i) != 0 {
			r.milli[i] -= spec.Devices.Milli
		}
	}
	r.takeExtras(spec, 1)
}

// give adds the resources and devices of a capsule that leaves.
func (r *room) give(spec *orbit.Spec, set orbit.DeviceSet) {
	for d, used := range spec.Envelope.Reservation {
		r.free[d] += used
	}
	for i := range r.milli {
		if set&(1<<i) != 0 {
			r.milli[i] += spec.Devices.Milli
		}
	}
}

// takeExtras subtracts what a capsule takes of extras; with the sign -1 it adds it.
func (r *room) takeExtras(spec *orbit.Spec, sign int64) {
	for _, x := range spec.Extras {
		r.extras[x.Name] -= sign * x.Amount
	}
}

// takes reports whether the node fits one more capsule of the spec, placed by any engine.
func (r *room) takes(spec *orbit.Spec) bool {
	if !r.Schedulable() || !r.Admits(spec) {
		return false
	}
	for _, p := range spec.Require {
		if !p.On(r.Node) {
			return false
		}
	}
	for d, want := range spec.Envelope.Reservation {
		if want > 0 && r.free[d] < want {
			return false
		}
	}
	for _, x := range spec.Extras {
		if r.extras[x.Name] < x.Amount {
			return false
		}
	}
	return spec.Devices.Count == 0 || len(r.instances(&spec.Devices)) >= spec.Devices.Count
}

// instances returns the device instances that satisfy a request.
func (r *room) instances(q *orbit.DeviceRequest) (out []int) {
	if len(q.Models) > 0 && !slices.Contains(q.Models, r.Devices.Model) {
		return nil
	}
	for i, left := range r.milli {
		if left >= q.Milli {
			out = append(out, i)
		}
	}
	return out
}

// String describes the free capacity of a node.
func (r *room) String() string {
	text := fmt.Sprintf("node %s (%s left, labels %v", r.ID, amounts(r.free), r.Labels)
	if len(r.milli) > 0 {
		text += fmt.Sprintf(", devices %s %v", r.Devices.Model, r.milli)
	}
	return text + ")"
}

// anywhere reports whether the gang may be spread over all nodes.
func anywhere(g *orbit.Gang) bool { return g.Loose || len(g.Levels) == 0 }

// seatGang looks in every domain of a gang for nodes on which these members fit together. It returns the domain and the
// node of each member; nil if they fit nowhere.
func seatGang(g *orbit.Gang, rooms []room, tenants []tenant, members []*orbit.Spec) (domain string, where []orbit.NodeID) {
	var domains []string
	for _, level := range g.Levels {
		for i := range rooms {
			if name := rooms[i].Labels[level]; name != "" && !slices.Contains(domains, level+" "+name) {
				domains = append(domains, level+" "+name)
			}
		}
	}
	if anywhere(g) {
		domains = append(domains, "")
	}
	for _, domain := range domains {
		level, name, _ := strings.Cut(domain, " ")
		s := seating{all: rooms, before: tenants, steps: 100_000}
		for i := range rooms {
			if domain == "" || rooms[i].Labels[level] == name {
				s.rooms = append(s.rooms, &rooms[i])
			}
		}
		if where := s.seat(members, 0, nil); where != nil {
			return domain, where
		}
	}
	return "", nil
}

// seating is an exhaustive search for nodes for the members of a gang.
type seating struct {
	rooms []*room
	// all is all nodes, before the capsules that are on them, and seated the members that have got a node.
	all            []room
	before, seated []tenant
	// steps is the number of steps that are left, so that a hopeless search ends. Then the members count as not
	// fitting.
	steps int
}

// seat places the rest of the members. Members with the same spec follow each other, and take rooms in ascending order,
// so that no combination is tried twice: the first of the rest takes room from or a later one. Seat returns so with the
// nodes of the rest added; nil if they do not fit.
func (s *seating) seat(rest []*orbit.Spec, from int, so []orbit.NodeID) []orbit.NodeID {
	if s.steps--; s.steps < 0 {
		return nil
	}
	if len(rest) == 0 {
		if s.even() && keepNear(s.before, s.seated) {
			return so
		}
		return nil
	}
	spec := rest[0]
	for i := from; i < len(s.rooms); i++ {
		r := s.rooms[i]
		if !r.takes(spec) || !keepsApart(slices.Concat(s.before, s.seated), tenant{spec, r.Node}) {
			continue
		}
		next := 0
		if len(rest) > 1 && rest[1] == spec {
			next = i
		}
		for _, set := range choices(r.instances(&spec.Devices), spec.Devices.Count) {
			was := *r
			was.milli = slices.Clone(r.milli)
			r.take(spec, set)
			s.seated = append(s.seated, tenant{spec, r.Node})
			found := s.seat(rest[1:], next, append(slices.Clone(so), r.ID))
			s.seated = s.seated[:len(s.seated)-1]
			*r = was
			if found != nil {
				return found
			}
		}
	}
	return nil
}

// choices returns all sets of n of the instances.
func choices(of []int, n int) (out []orbit.DeviceSet) {
	if n == 0 {
		return []orbit.DeviceSet{0}
	}
	for k, i := range of {
		for _, rest := range choices(of[k+1:], n-1) {
			out = append(out, rest|1<<i)
		}
	}
	return out
}
