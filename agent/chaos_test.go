package agent_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
)

// deed is something that happens in a storm.
type deed struct {
	after time.Duration
	what  string
	host  int
	n     int
}

// deeds are the kinds of deeds, those that are to be more frequent several times.
var deeds = []string{
	"services", "services", "batch", "batch", "urgent", "urgent", "gang", "end", "end", "anew",
	"drain", "drain", "open", "cordon", "cut", "heal", "heal", "lossy", "slow",
	"kill", "crash", "start", "start", "reboot", "twin", "no twin", "lost", "break", "suspend", "suspend",
	"kill control", "start control", "start control", "pause control", "resume control", "resume control",
}

// TestStorm lets everything happen at once. Nodes are drained, cut off, lost and rebooted. Agents are suspended, killed and
// started, also on another machine under the same id. Answers are lost. One to three control processes are suspended, killed and
// started. Work is evicted, ended and submitted anew. At no time does a capsule run twice, or a node run more than it has. When the
// storm is over, what is placed runs, what runs is placed, and everything that ends gets done; once, if no node or agent was lost or
// cut off.
func TestStorm(t *testing.T) {
	scale.Long(t)
	rapid.Check(t, func(t *rapid.T) {
		hosts, controls := rapid.IntRange(2, 4).Draw(t, "hosts"), rapid.IntRange(1, 3).Draw(t, "controls")
		var story []deed
		for range rapid.IntRange(5, 60).Draw(t, "deeds") {
			story = append(story, deed{
				after: time.Duration(rapid.SampledFrom([]int{0, 50, 300, 1000, 3000, 8000, 15000}).Draw(t, "after")) * ms,
				what:  rapid.SampledFrom(deeds).Draw(t, "what"),
				host:  rapid.IntRange(0, hosts-1).Draw(t, "host"),
				n:     rapid.IntRange(1, 5).Draw(t, "n"),
			})
		}
		rapid.SyncTest(t, func(t *rapid.T) {
			s := &storm{world: beginShared(t, hosts, true, controls), ended: map[orbit.CapsuleID]bool{}}
			twin := s.newHost("n0")
			twin.name, twin.twin = "twin of n0", true
			for _, d := range story {
				s.pass(d.after)
				s.do(d)
				s.sound()
			}
			s.calm()
		})
	})
}

// storm is a world in which deeds are done.
type storm struct {
	*world
	serial int
	// An agent may have been unable to tell what is done.
	silent bool
	// What was released for good.
	ended map[orbit.CapsuleID]bool
}

func (s *storm) do(d deed) {
	h := s.hosts[d.host]
	s.silent = s.silent || slices.Contains([]string{"cut", "lossy", "kill", "crash", "twin", "reboot", "lost", "suspend", "kill control", "pause control"}, d.what)
	switch d.what {
	case "services":
		s.submit(d.n, spec(orbit.LatencySensitive, 1, 1), nil)
	case "urgent":
		s.submit(1, spec(orbit.LatencySensitive, int64(min(d.n, 3)), 100), nil)
	case "batch":
		labels := map[string]string{"for": (time.Duration(d.n) * sec).String()}
		if d.n == 5 {
			labels["fails"] = ""
		}
		s.submit(d.n, spec(orbit.Batch, 1, 0), labels)
	case "gang":
		s.serial++
		role := orbit.Role{Name: "w", Spec: spec(orbit.GangClass, 1, 2), Members: ids(fmt.Sprint("g", s.serial, "-"), d.n)}
		s.commit(orbit.Submit{Gang: &orbit.Gang{ID: orbit.GangID(fmt.Sprint("g", s.serial)), Roles: []orbit.Role{role}, Levels: []string{"rack"}}})
	case "end", "anew":
		s.end(d)
	case "drain", "open":
		s.drain(d.host, d.what == "drain")
	case "cordon":
		s.put(d.host, orbit.Cordoned)
	case "cut", "heal":
		h.link.set(func(l *link) { l.cut = d.what == "cut" })
	case "lossy":
		h.link.set(func(l *link) { l.loses = d.n - 1 })
	case "slow":
		h.link.set(func(l *link) { l.delay = time.Duration(d.n-1) * 150 * ms })
	case "kill":
		s.kill(d.host)
	case "start":
		s.start(d.host)
	case "crash":
		s.crash(d.host)
	case "twin":
		s.start(len(s.hosts) - 1)
	case "no twin":
		s.crash(len(s.hosts) - 1)
	case "reboot":
		s.kill(d.host)
		h.reboot()
	case "suspend":
		h.suspendFor(time.Duration(d.n) * fence / 3)
	case "kill control":
		s.killControl(d.n % len(s.controls))
	case "start control":
		s.startControl(d.n % len(s.controls))
	case "pause control", "resume control":
		s.controls[d.n%len(s.controls)].gate.pause(d.what == "pause control")
	case "break":
		leave := h.enter()
		if h.broken == nil {
			h.broken = fmt.Errorf("broken")
		} else {
			h.broken = nil
		}
		leave()
	case "lost": // only of what really is gone, as an operator would
		for n, other := range s.hosts { // the twin too, which may be the machine that the node is at present
			if other.id == h.id {
				s.kill(n)
				other.reboot()
			}
		}
		s.put(d.host, orbit.Lost)
	}
}

// submit submits capsules that are new.
func (s *storm) submit(n int, spec *orbit.Spec, labels map[string]string) {
	s.serial++
	s.commit(orbit.Submit{IDs: ids(fmt.Sprint("c", s.serial, "-"), n), Spec: spec, Labels: labels})
}

// end releases a capsule for good, and submits its id anew.
func (s *storm) end(d deed) {
	var live []orbit.CapsuleID
	for c := range s.state().Capsules() {
		if !c.Released() && c.Gang() == "" {
			live = append(live, c.ID)
		}
	}
	if len(live) == 0 {
		return
	}
	slices.Sort(live)
	id := live[(d.host*7+d.n)%len(live)]
	do := []orbit.Commitment{orbit.Release{Capsule: id, Final: true}}
	if d.what == "anew" {
		do = append(do, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: spec(orbit.LatencySensitive, 1, 1)})
	}
	s.ended[id] = true
	s.commit(do...)
}

// calm ends the storm, and looks at what is left.
func (s *storm) calm() {
	for n, h := range s.hosts {
		h.link.set(func(l *link) { l.cut, l.loses, l.delay = false, 0, 0 })
		h.breakBy(nil, false)
		h.suspendFor(0)
		if h.twin {
			s.crash(n)
		} else {
			s.start(n)
		}
	}
	for n, c := range s.controls {
		c.gate.pause(false)
		s.startControl(n)
	}
	s.pass(40 * sec)
	for n := range s.hosts {
		s.drain(n, false)
	}
	s.endAll(func(c *orbit.Capsule) bool { return c.Labels()["for"] != "" && hasLabel(c, "fails") })
	s.pass(3 * time.Minute)
	s.atRest()
	s.endAll(func(c *orbit.Capsule) bool { return c.Labels()["for"] == "" }) // to make room for what waits
	s.pass(3 * time.Minute)
	s.atRest()
	_, _, done := s.books.read()
	for id, n := range done {
		require.True(s, n == 1 || s.silent, "%s is done %d times", id, n)
	}
	for c := range s.state().Capsules() {
		require.True(s, c.Released(), "%s is not done", c.ID)
		require.True(s, done[c.ID] > 0 || c.Labels()["for"] == "" || hasLabel(c, "fails") || s.ended[c.ID], "%s is released and not done", c.ID)
	}
}

func hasLabel(c *orbit.Capsule, key string) bool {
	_, has := c.Labels()[key]
	return has
}

// endAll releases capsules for good.
func (s *storm) endAll(which func(*orbit.Capsule) bool) {
	for c := range s.state().Capsules() {
		if !c.Released() && which(c) {
			s.commit(orbit.Release{Capsule: c.ID, Final: true})
		}
	}
}
