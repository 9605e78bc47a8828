package race

import (
	"cmp"
	"slices"
	"strings"

	"github.com/orbitsched/orbit"
)

// This file is brute force on gangs: it seats members one by one, in every way there is.

// judgeGang looks for a place for a gang that waits, whole or at its minimum, or for one more member of one
// that runs.
func (b *liveBooks) judgeGang(g *orbit.GangState) {
	var waiting []*orbit.Capsule
	var running []*liveRoom
	var least []*orbit.Spec
	fresh := g.Total() == 0
	for k := range g.Gang.Roles {
		role, n := &g.Gang.Roles[k], 0
		for _, id := range role.Members {
			switch c := b.state.Capsule(id); {
			case c == nil || c.Gang != g.Gang.ID:
			case c.Placed():
				running = append(running, b.room(c.Node))
			case c.Pending():
				waiting = append(waiting, c)
				n++
			}
		}
		need := cmp.Or(role.Min, len(role.Members))
		if fresh && n < need {
			return // some have ended: the rest may never start
		}
		least = append(least, slices.Repeat([]*orbit.Spec{role.Spec}, need)...)
	}
	if len(waiting) == 0 || b.owner(waiting[0]) == nil || b.owner(waiting[0]).kind != "gang" {
		return
	}
	if fresh {
		b.judgeFresh(g, waiting, least)
		return
	}
	for _, c := range waiting {
		for i := range b.rooms {
			if r := &b.rooms[i]; r.takes(c.Spec) && b.joins(g.Gang, running, r) {
				b.fail("left", "member %s (%s) of gang %s, which runs, is pending and fits on %v; the engine last said: %v",
					c.ID, wishes(c.Spec), g.Gang.ID, r, b.said(c))
			}
		}
	}
}

func (b *liveBooks) room(id orbit.NodeID) *liveRoom {
	for i := range b.rooms {
		if b.rooms[i].ID == id {
			return &b.rooms[i]
		}
	}
	return nil
}

// anywhere reports whether all nodes together are a domain of the gang's.
func anywhere(g *orbit.Gang) bool { return g.Loose || len(g.Levels) == 0 }

// joins reports whether a member may join those that run on a node: it is in a domain that all of them share.
func (b *liveBooks) joins(g *orbit.Gang, running []*liveRoom, r *liveRoom) bool {
	if anywhere(g) {
		return true
	}
	return slices.ContainsFunc(g.Levels, func(level string) bool {
		domain := r.Labels[level]
		apart := func(other *liveRoom) bool { return other.Labels[level] != domain }
		return domain != "" && !slices.ContainsFunc(running, apart)
	})
}

// judgeFresh looks in every domain for a seating of the members that a gang needs to start.
func (b *liveBooks) judgeFresh(g *orbit.GangState, waiting []*orbit.Capsule, least []*orbit.Spec) {
	var domains []string
	for _, level := range g.Gang.Levels {
		for i := range b.rooms {
			if name := b.rooms[i].Labels[level]; name != "" && !slices.Contains(domains, level+" "+name) {
				domains = append(domains, level+" "+name)
			}
		}
	}
	if anywhere(g.Gang) {
		domains = append(domains, "")
	}
	for _, domain := range domains {
		level, name, _ := strings.Cut(domain, " ")
		var rooms []*liveRoom
		for i := range b.rooms {
			if domain == "" || b.rooms[i].Labels[level] == name {
				rooms = append(rooms, &b.rooms[i])
			}
		}
		s := liveSeating{rooms: rooms, steps: 100_000}
		if where := s.seat(least, 0, nil); where != nil {
			b.fail("left", "gang %s is pending, and %d members, which are enough to start, fit in %q on %v; the engine last said: %v",
				g.Gang.ID, len(least), domain, where, b.said(waiting[0]))
		}
	}
}

// liveSeating searches for seats.
type liveSeating struct {
	rooms []*liveRoom
	// Left, so that a hopeless search ends; what it has not found then is taken not to be there.
	steps int
}

// seat seats the rest of the members, of which those of one spec follow each other: the first one not before a
// room. It returns on which nodes, nil if they do not fit.
func (s *liveSeating) seat(rest []*orbit.Spec, from int, so []orbit.NodeID) []orbit.NodeID {
	if s.steps--; s.steps < 0 {
		return nil
	}
	if len(rest) == 0 {
		return so
	}
	spec := rest[0]
	for i := from; i < len(s.rooms); i++ {
		r := s.rooms[i]
		if !r.takes(spec) {
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
			found := s.seat(rest[1:], next, append(slices.Clone(so), r.ID))
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
