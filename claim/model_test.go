package claim_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/orbitsched/orbit/claim"
	"github.com/orbitsched/orbit/sim"
)

// us is the grid of the model's events. No two of them are at one instant, so there is one right answer.
const us = time.Microsecond

// play is a plan for a pool. All random values are drawn before anything runs.
type play struct {
	inflight int
	latency  time.Duration
	requests []ask
	slots    []time.Duration   // when each slot becomes idle
	phases   map[string]string // of each slot
}

type ask struct {
	at, deadline time.Duration // a deadline of 0 is none
	want         string        // the phase; "": any
}

// fate is the end of a request: the slot it gets ("" if its deadline passes first), and when.
type fate struct {
	slot string
	at   time.Duration
}

func drawPlay(t *rapid.T) play {
	p := play{inflight: rapid.IntRange(1, 4).Draw(t, "inflight"), latency: time.Duration(rapid.IntRange(1, 30).Draw(t, "latency")) * ms}
	n := rapid.IntRange(1, 25).Draw(t, "requests")
	for i := range n { // the remainders by 100 µs make the times of different kinds and numbers of events differ
		a := ask{at: time.Duration(rapid.IntRange(0, 100).Draw(t, "at"))*ms + time.Duration(100+i)*us}
		a.want = rapid.SampledFrom([]string{"", "", "warm", "cold", "frozen"}).Draw(t, "want")
		if rapid.IntRange(0, 2).Draw(t, "ends") == 0 {
			a.deadline = a.at + time.Duration(rapid.IntRange(0, 60).Draw(t, "lasts"))*ms + 400*us
		}
		p.requests = append(p.requests, a)
	}
	slices.SortFunc(p.requests, func(a, b ask) int { return int(a.at - b.at) })
	p.phases = map[string]string{}
	for i := range rapid.IntRange(0, 30).Draw(t, "slots") {
		p.phases[fmt.Sprint("s", i)] = rapid.SampledFrom([]string{"warm", "cold"}).Draw(t, "phase")
		p.slots = append(p.slots, time.Duration(rapid.IntRange(0, 120).Draw(t, "idle"))*ms+time.Duration(200+i)*us)
	}
	slices.Sort(p.slots)
	return p
}

// model is a simple pool that looks at all its requests and slots after every event.
type model struct {
	play
	now     time.Duration
	idle    []string
	back    []string // slots given back, which listings show as soon as the requests that wait have had the idle ones
	waiting []int
	flying  []leg
	fates   []fate
	done    []bool
}

// leg is a slot in flight, to a request or back to the source.
type leg struct {
	end     time.Duration
	slot    string
	request int // -1: back
}

// expect returns the right fate of each request.
func (p play) expect() []fate {
	m := &model{play: p, fates: make([]fate, len(p.requests)), done: make([]bool, len(p.requests))}
	asked, added := 0, 0
	for m.now = 0; m.now < 10*time.Second; m.now += us {
		if asked < len(p.requests) && p.requests[asked].at == m.now {
			m.waiting = append(m.waiting, asked)
			asked++
		}
		if added < len(p.slots) && p.slots[added] == m.now {
			m.idle = append(m.idle, fmt.Sprint("s", added))
			added++
		}
		m.land()
		m.expire()
		m.pair()
		m.idle, m.back = append(m.idle, m.back...), nil
		m.pair()
		m.skip(asked, added)
	}
	return m.fates
}

func (m *model) land() {
	for i := 0; i < len(m.flying); i++ {
		f := m.flying[i]
		if f.end != m.now {
			continue
		}
		m.flying = slices.Delete(m.flying, i, i+1)
		i--
		switch {
		case f.request < 0:
			m.back = append(m.back, f.slot)
		case m.done[f.request]: // its request has ended
			m.flying = append(m.flying, leg{m.now + m.latency/2, f.slot, -1})
		default:
			m.done[f.request], m.fates[f.request] = true, fate{f.slot, m.now}
		}
	}
}

func (m *model) expire() {
	for i, r := range m.requests {
		if r.deadline == m.now && !m.done[i] && r.deadline != 0 {
			m.done[i], m.fates[i] = true, fate{"", m.now}
			m.waiting = slices.DeleteFunc(m.waiting, func(k int) bool { return k == i })
		}
	}
}

func (m *model) pair() {
	for i := 0; i < len(m.waiting) && len(m.flying) < m.inflight; {
		want := m.requests[m.waiting[i]].want
		at := slices.IndexFunc(m.idle, func(slot string) bool { return want == "" || m.phases[slot] == want })
		if at < 0 {
			i++
			continue
		}
		m.flying = append(m.flying, leg{m.now + m.latency, m.idle[at], m.waiting[i]})
		m.waiting, m.idle = slices.Delete(m.waiting, i, i+1), slices.Delete(m.idle, at, at+1)
	}
}

// skip advances the clock to just before the next event.
func (m *model) skip(asked, added int) {
	next := 10 * time.Second
	see := func(t time.Duration) {
		if t > m.now {
			next = min(next, t)
		}
	}
	if asked < len(m.requests) {
		see(m.requests[asked].at)
	}
	if added < len(m.slots) {
		see(m.slots[added])
	}
	for _, f := range m.flying {
		see(f.end)
	}
	for i, r := range m.requests {
		if !m.done[i] {
			see(r.deadline)
		}
	}
	m.now = next - us
}

// A pool does what the model says: each request gets the same slot at the same nanosecond, first in, first out.
func TestPoolAgainstTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPlay(t)
		want := p.expect()
		rapid.SyncTest(t, func(t *rapid.T) {
			got := p.perform(t)
			for i := range want {
				if got[i] != want[i] {
					t.Fatalf("request %d (at %v, ends at %v): %+v, want %+v", i, p.requests[i].at, p.requests[i].deadline, got[i], want[i])
				}
			}
		})
	})
}

// phased is a store whose slots have phases.
type phased struct {
	*sim.StaleStore
	phases map[string]string
}

func (s phased) Idle(ctx context.Context) (claim.Listing, error) {
	l, err := s.StaleStore.Idle(ctx)
	for i := range l.Slots {
		l.Slots[i].Labels = map[string]string{claim.PhaseLabel: s.phases[l.Slots[i].Name]}
	}
	return l, err
}

// perform plays the plan with a real pool.
func (p play) perform(t *rapid.T) []fate {
	start := time.Now()
	s := &sim.StaleStore{Latency: p.latency}
	pool := &claim.Pool{Inflight: p.inflight, NotifyDelay: -1, Source: phased{s, p.phases}}
	done := make(chan error, 1)
	go func() { done <- pool.Run(context.Background()) }()
	for i, at := range p.slots {
		time.AfterFunc(at, func() { s.Add(fmt.Sprint("s", i)); pool.NotifyIdle() })
	}
	fates := make([]fate, len(p.requests))
	answers := make([]chan claim.Result, len(p.requests))
	for i, r := range p.requests {
		answers[i] = make(chan claim.Result, 2)
		req := &claim.Request{Result: answers[i], Want: claim.Want{Phase: r.want}}
		if r.deadline != 0 {
			req.Deadline = start.Add(r.deadline)
		}
		time.AfterFunc(r.at, func() {
			pool.Enqueue(req)
			res := <-answers[i]
			if res.Err == nil || time.Since(start) < 9*time.Second {
				fates[i] = fate{res.Slot.Name, time.Since(start)}
			}
		})
	}
	time.Sleep(9 * time.Second)
	pool.Shutdown()
	synctest.Wait()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for i := range answers {
		if len(answers[i]) > 0 {
			t.Fatalf("request %d is answered twice", i)
		}
	}
	if s.Doubled() > 0 {
		t.Fatal("a slot was handed out twice")
	}
	return fates
}

// The model itself is checked: with plenty of slots it serves every request.
func TestTheModelItself(t *testing.T) {
	p := play{inflight: 1, latency: 10 * ms, requests: []ask{{at: 0}, {at: us, deadline: 5 * ms}, {at: 2 * us, want: "warm"}},
		slots: []time.Duration{3 * us, 4 * us, 7 * us}, phases: map[string]string{"s2": "warm"}}
	want := []fate{{"s0", 10*ms + 3*us}, {"", 5 * ms}, {"s2", 20*ms + 3*us}}
	if got := p.expect(); !slices.Equal(got, want) {
		t.Fatalf("%+v, want %+v", got, want)
	}
}
