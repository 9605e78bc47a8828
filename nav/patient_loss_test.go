package nav_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/nav"
)

// lossTrial is small work that flows through 100 nodes of 4 cores, of one core and up to 8 s each, always more of it than there is
// room for; and large work of whole nodes that comes when all is full.
type lossTrial struct {
	// How many services of 4 cores, and how many gangs of four such members.
	services, gangs int
	// The large work is there before the small work.
	first bool
	// Small work that waits is nominated too.
	patient bool

	l         *orbit.MemoryLedger
	next      int
	seen      orbit.Revision
	ends      map[time.Duration][]orbit.CapsuleID // by tick
	running   int
	start     time.Time
	submitted time.Duration
	// Since large work was submitted: small capsules that have ended; and in core seconds what small work has used, what was
	// nominated, and what large work has used.
	ended                    int
	small, nominated, placed float64
	// When the last of the large work was placed, and how many capsules of it were not.
	after time.Duration
	left  int
}

const (
	lossTick    = 50 * time.Millisecond
	lossHorizon = 30 * time.Second
)

func (p *lossTrial) submitSmall(t *testing.T, n int) {
	if n == 0 {
		return
	}
	var ids []orbit.CapsuleID
	for range n {
		ids = append(ids, orbit.CapsuleID(fmt.Sprint("small-", p.next)))
		p.next++
	}
	s := spec(1, 0)
	s.Class = orbit.Batch
	commit(t, p.l, orbit.Submit{IDs: ids, Spec: s, Owner: "small"})
}

func (p *lossTrial) submitLarge(t *testing.T) {
	s := spec(4, 100)
	s.Module = "large"
	for i := range p.services {
		commit(t, p.l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("service-", i))}, Spec: s, Owner: "services"})
	}
	g := spec(4, 100)
	g.Class, g.Module = orbit.GangClass, "large"
	for i := range p.gangs {
		r := orbit.Role{Name: "worker", Spec: g}
		for m := range 4 {
			r.Members = append(r.Members, orbit.CapsuleID(fmt.Sprint("gang-", i, "-", m)))
		}
		commit(t, p.l, orbit.Submit{Gang: &orbit.Gang{ID: orbit.GangID(fmt.Sprint("gang-", i)), Roles: []orbit.Role{r}}, Owner: "gangs"})
	}
}

// step notes what has been placed, ends what is over and submits as much.
func (p *lossTrial) step(t *testing.T, counted bool) {
	synctest.Wait()
	changes, err := p.l.Changes(t.Context(), p.seen)
	require.NoError(t, err)
	now := time.Since(p.start)
	for i := range changes {
		p.seen = changes[i].Revision
		if c, ok := changes[i].Do.(orbit.Place); ok && strings.HasPrefix(string(c.Capsule), "small-") {
			over := now + lastsOf(c.Capsule)
			p.ends[over] = append(p.ends[over], c.Capsule)
			p.running++
		} else if ok && counted {
			p.after = now - p.submitted
		}
	}
	var over []orbit.Commitment
	for _, id := range p.ends[now] {
		over = append(over, orbit.Release{Capsule: id, Final: true})
	}
	if p.running -= len(over); len(over) > 0 {
		commit(t, p.l, over...)
	}
	p.submitSmall(t, len(p.ends[now]))
	if counted {
		p.ended += len(p.ends[now])
		p.count(t)
	}
	delete(p.ends, now)
	time.Sleep(lossTick)
}

// lastsOf is how long a small capsule runs, the same in every trial.
func lastsOf(id orbit.CapsuleID) time.Duration {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id))
	return time.Duration(1+h.Sum64()%160) * lossTick
}

// count adds up what is used and what is nominated in a tick.
func (p *lossTrial) count(t *testing.T) {
	s, each := snapshot(t, p.l), lossTick.Seconds()
	p.small += float64(p.running) * each
	for n := range s.Nominations() {
		for i := range n.Parts {
			p.nominated += float64(n.Parts[i].Room[orbit.CPU]) * each
		}
	}
	used := int64(0)
	for n := range s.Nodes() {
		used += n.Used()[orbit.CPU]
	}
	p.placed += float64(used-int64(p.running)) * each
}

func (p *lossTrial) run(t *testing.T) *lossTrial {
	synctest.Test(t, func(t *testing.T) {
		p.l, p.start, p.ends = &orbit.MemoryLedger{}, time.Now(), map[time.Duration][]orbit.CapsuleID{}
		for i := range 100 {
			commit(t, p.l, node(fmt.Sprintf("n%02d", i), 4))
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for name, n := range map[string]orbit.Navigator{"small": &nav.Batch{}, "services": &nav.Services{}, "gangs": &nav.Gang{}} {
			e := &orbit.Engine{Name: name, Ledger: p.l, ParkFor: time.Second, Navigator: n}
			if p.patient || name != "small" {
				e.Navigator = &nav.Patient{Navigator: n, After: time.Second}
			}
			all.Go(func() { assert.NoError(t, e.Run(ctx)) })
		}
		if p.first {
			p.submitLarge(t)
			for time.Since(p.start) < 4*time.Second {
				p.step(t, false)
			}
		}
		for p.submitSmall(t, 500); time.Since(p.start) < 15*time.Second; {
			p.step(t, false)
		}
		if !p.first {
			p.submitLarge(t)
		}
		for p.submitted = time.Since(p.start); time.Since(p.start) < p.submitted+lossHorizon; {
			p.step(t, true)
		}
		for p.left = p.waiting(t); p.left > 0 && time.Since(p.start) < p.submitted+2*lossHorizon; p.left = p.waiting(t) { // one in some runs
			p.step(t, false)
		}
		cancel()
		all.Wait()
		require.NoError(t, snapshot(t, p.l).Verify())
	})
	return p
}

// waiting counts the large capsules that are not placed.
func (p *lossTrial) waiting(t *testing.T) (left int) {
	for c := range snapshot(t, p.l).Capsules() {
		if c.Spec.Module == "large" && !c.Placed() {
			left++
		}
	}
	return left
}

// While large work waits for room that is claimed for it, small work keeps at least nine tenths of what gets done beside the same
// large work that is placed already; and what it loses beside what the large work uses is at most the claimed room, for as long as
// it is claimed.
func TestSmallWorkFlowsBesideLargeWorkThatWaits(t *testing.T) {
	scale.Long(t)
	trials := []lossTrial{{services: 5, gangs: 1}, {services: 10}, {gangs: 2, patient: true}}
	for _, p := range scale.Some(1, trials...) {
		t.Run(fmt.Sprintf("%d services, %d gangs, small work claims too: %v", p.services, p.gangs, p.patient), func(t *testing.T) {
			alone, waits, before := lossTrial{patient: p.patient}, p, p
			before.first = true
			alone.run(t)
			waits.run(t)
			before.run(t)
			figures := fmt.Sprintf("small capsules ended in %v: %d alone, %d while large work waits, %d beside large work; core seconds: small %.0f, %.0f, %.0f; large %.0f, claimed %.0f; the last was placed after %v",
				lossHorizon, alone.ended, waits.ended, before.ended, alone.small, waits.small, before.small, waits.placed, waits.nominated, waits.after)
			t.Log(figures)
			require.Zero(t, waits.left, figures)
			require.Positive(t, waits.nominated, figures)
			require.GreaterOrEqual(t, 10*waits.ended, 9*before.ended, figures)
			require.LessOrEqual(t, alone.small-waits.small, waits.placed+waits.nominated, figures)
		})
	}
}
