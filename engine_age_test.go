package orbit

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit/internal/scale"
)

// ageStream is an endless stream of tasks through one slot: each runs for 100 ms, and as many come as end.
type ageStream struct {
	aging Aging
	// The priority of the i-th task, which says when it was submitted if told.
	priority func(i int) int32
	told     func(i int) bool
}

// run submits one capsule of priority 0 among the stream, for a minute, and returns how long it waited (false: it is not placed), and
// the longest wait of a task that was submitted in the first half.
func (s ageStream) run(t *testing.T) (waited time.Duration, placed bool, longest time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		l, start := &MemoryLedger{}, time.Now()
		commit(t, l, PutNode{machine("n", 1)})
		submitted := map[CapsuleID]time.Time{}
		submit := func(id CapsuleID, priority int32, told bool) {
			do := Submit{IDs: []CapsuleID{id}, Spec: wants(1)}
			if do.Spec.Priority = priority; told {
				do.At = instantOf(time.Now())
			}
			commit(t, l, do)
			submitted[id] = time.Now()
		}
		ctx, cancel := context.WithCancel(t.Context())
		e := &Engine{Ledger: l, Navigator: &firstFit{}, Aging: s.aging}
		go func() { _ = e.Run(ctx) }()
		for i := 0; time.Since(start) < time.Minute; i++ {
			submit(CapsuleID(fmt.Sprint("t", i)), s.priority(i), s.told(i))
			if i < 3 {
				continue // so that there is always one that waits
			}
			if i == 3 {
				submit("low", 0, s.told(0))
			}
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			for c := range snapshotOf(t, l).Capsules() {
				wait := time.Since(submitted[c.ID])
				if at := c.PlaceTime.Time(); c.PlacedAt > 0 {
					wait = at.Sub(submitted[c.ID])
				}
				if c.ID == "low" {
					waited, placed = wait, c.PlacedAt > 0
				} else if submitted[c.ID].Sub(start) < 30*time.Second {
					longest = max(longest, wait)
				}
				if c.Placed() {
					commit(t, l, Release{Capsule: c.ID, Final: true})
				}
			}
		}
		cancel()
		synctest.Wait()
	})
	return waited, placed, longest
}

// Under an endless stream of slightly higher priority nothing waits longer than it takes to rise through the band, and what comes
// before it then: here a few tasks. Without ageing the lowest waits for ever, and so it does behind a band above its own.
func TestAgedWorkIsNotStarved(t *testing.T) {
	scale.Long(t)
	aging := Aging{Every: time.Second, Band: 10}
	always, never := func(int) bool { return true }, func(int) bool { return false }
	mixed := func(i int) int32 { return int32(i * 7 % 10) }
	nine := func(int) int32 { return 9 }
	const bound = 9*time.Second + time.Second
	for name, s := range map[string]ageStream{
		"nines":              {aging, nine, always},
		"all of the band":    {aging, mixed, always},
		"nobody says when":   {aging, nine, never},
		"some say when":      {aging, mixed, func(i int) bool { return i%3 > 0 }},
		"ten times as fast":  {Aging{Every: time.Second / 10, Band: 10}, nine, always},
		"a band of 10 alone": {Aging{Every: time.Second}, nine, always},
	} {
		t.Run(name, func(t *testing.T) {
			waited, placed, longest := s.run(t)
			require.True(t, placed)
			assert.LessOrEqual(t, waited, 9*s.aging.Every+time.Second)
			assert.LessOrEqual(t, longest, bound)
			if name == "nines" { // and not before it has risen so far
				assert.Greater(t, waited, 8*time.Second)
			}
		})
	}
	for name, s := range map[string]ageStream{
		"off":              {Aging{}, nine, always},
		"a higher band":    {aging, func(int) int32 { return 10 }, always},
		"bands of one":     {Aging{Every: time.Millisecond, Band: 1}, func(int) int32 { return 1 }, always},
		"across a limit":   {Aging{Every: time.Millisecond, Band: 7}, func(int) int32 { return 7 }, always},
		"higher, untimely": {aging, func(int) int32 { return 12 }, never},
	} {
		t.Run(name, func(t *testing.T) {
			_, placed, _ := s.run(t)
			require.False(t, placed)
		})
	}
}

// Whatever comes, is placed by others and is taken, the queue gives what a sort of all that waits gives: the higher band first, and
// then who is ahead by age.
func TestAgedQueueAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		aging := Aging{Every: time.Duration(rapid.IntRange(1, 50).Draw(t, "every")), Band: rapid.IntRange(0, 5).Draw(t, "band")}
		l, now := &MemoryLedger{}, Instant(1000)
		commit(t, l, PutNode{machine("n", 1000)})
		q := queue{aging: aging.book()}
		seen := snapshotOf(t, l)
		q.clear(seen)
		since := map[CapsuleID]Instant{}
		follow := func() {
			changes, err := l.Changes(t.Context(), seen.Revision())
			require.NoError(t, err)
			seen = snapshotOf(t, l)
			q.now = now
			for i := range changes {
				q.absorb(&changes[i], seen, func(string, *Spec) bool { return true })
			}
		}
		before := func(a, b *Capsule) int {
			band := func(c *Capsule) int32 {
				k, _ := q.aging.Turn(c.Spec.Priority, 0)
				return k
			}
			ahead := func(c *Capsule) int64 { return int64(since[c.ID]) - int64(c.Spec.Priority)*int64(aging.Every) }
			return cmp.Or(cmp.Compare(band(b), band(a)), cmp.Compare(ahead(a), ahead(b)))
		}
		for i := range rapid.IntRange(1, 40).Draw(t, "steps") {
			now += Instant(rapid.IntRange(1, 100).Draw(t, "passes"))
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0, 1, 2:
				do := Submit{IDs: []CapsuleID{CapsuleID(fmt.Sprint("c", i))}, Spec: wants(1)}
				if do.Spec.Priority = rapid.SampledFrom([]int32{-7, -1, 0, 1, 8}).Draw(t, "priority"); rapid.Bool().Draw(t, "told") {
					do.At = now
				}
				since[do.IDs[0]] = now
				commit(t, l, do)
			case 3:
				if waiting := seen.Pending(); len(waiting) > 0 {
					commit(t, l, Place{Capsule: rapid.SampledFrom(waiting).Draw(t, "placed").ID, Node: "n"})
				}
			case 4:
				want := seen.Pending()
				slices.SortFunc(want, before)
				n := rapid.IntRange(1, 5).Draw(t, "take")
				q.turn(n, seen, false)
				got := q.take(n)
				require.Len(t, got, min(n, len(want)))
				for k := range got { // equals may come in either order
					require.Zero(t, before(want[k], got[k]), "%v, want %v", idsOf(got), idsOf(want[:len(got)]))
				}
			}
			follow()
		}
	})
}

// What has risen above another and loses its bet is not overtaken by it on room that it could use.
func TestAgedWorkThatLosesIsNotOvertaken(t *testing.T) {
	for _, aging := range []Aging{{}, {Every: time.Second}} {
		l, plans := &MemoryLedger{}, 0
		commit(t, l, PutNode{machine("a", 1)}, PutNode{machine("b", 1)})
		fit := &firstFit{}
		e := &Engine{Ledger: l, Aging: aging, Navigator: planFunc(func(ctx context.Context, view *View, pending []*Capsule) (Plan, error) {
			plan, err := fit.Plan(ctx, view, pending)
			if plans++; plans == 1 { // another comes between the view and the proposal
				commit(t, l, Submit{IDs: []CapsuleID{"thief"}, Spec: wants(1), Owner: "other"}, Place{Capsule: "thief", Node: "a"})
			}
			return plan, err
		})}
		urgent := wants(1)
		urgent.Priority = 3
		commit(t, l, Submit{IDs: []CapsuleID{"young"}, Spec: urgent, At: instantOf(time.Now())},
			Submit{IDs: []CapsuleID{"old"}, Spec: wants(1), At: instantOf(time.Now().Add(-time.Minute))})
		e.Pass(t.Context())
		e.Pass(t.Context())
		first, other := CapsuleID("young"), CapsuleID("old")
		if aging.Every > 0 {
			first, other = other, first
		}
		s := snapshotOf(t, l)
		require.True(t, s.Capsule(first).Placed(), "%v", aging)
		require.True(t, s.Capsule(other).Pending(), "%v", aging)
	}
}

// A class goes by the elder of its first nominee and its first other entry: a nominee that came later holds up none that waits behind
// it. And what is tried again of a parked class has the turn of its age.
func TestAgedClassesGoByTheirEldest(t *testing.T) {
	l := &MemoryLedger{Bounds: Limits{NominatedShare: 100}}
	spec := func(name string, priority int32) *Spec {
		s := wants(1)
		s.Module, s.Priority = name, priority
		return s
	}
	commit(t, l, PutNode{machine("n", 10)},
		Submit{IDs: []CapsuleID{"elder"}, Spec: spec("a", 0), At: 1000},
		Submit{IDs: []CapsuleID{"nominee"}, Spec: spec("a", 0), At: 9000},
		Submit{IDs: []CapsuleID{"between"}, Spec: spec("b", 5), At: 6500},
		Submit{IDs: []CapsuleID{"parked"}, Spec: spec("c", 0), At: 1200},
		Submit{IDs: []CapsuleID{"parkedToo"}, Spec: spec("e", 0), At: 1100},
		Submit{IDs: []CapsuleID{"alone"}, Spec: spec("d", 0), At: 1700})
	commit(t, l, Nominate{Capsule: "alone", Ends: time.Unix(2000, 0), Parts: []NominatedRoom{partOn("n", 1)}}, Nominate{Capsule: "nominee", Ends: time.Unix(2000, 0), Parts: []NominatedRoom{partOn("n", 1)}})
	q := queue{aging: Aging{Every: 1000}.book()}
	s := snapshotOf(t, l)
	q.now = 10_000
	q.clear(s)
	for slot, c := range s.capsuleSlots() {
		q.push(slot, c)
	}
	for _, id := range []CapsuleID{"parked", "parkedToo"} {
		require.True(t, q.park(&misfitting{spec: s.Capsule(id).Spec}, time.Unix(1, 0)))
	}
	take := func(n int) []CapsuleID {
		q.turn(n, s, false)
		q.retry(time.Unix(2, 0), 2)
		defer q.endTrials()
		return slices.Clone(idsOf(q.take(n)))
	}
	// Ahead by age are, in this order, elder (1000), parkedToo (1100), parked (1200), between (6500 - 5000), alone (1700) and nominee (9000).
	require.Equal(t, []CapsuleID{"nominee", "elder", "parkedToo", "parked", "between", "alone"}, take(6))
}

func TestAgingThatCannotBe(t *testing.T) {
	for _, aging := range []Aging{{Every: -1}, {Every: 1, Band: -1}, {Every: mostAging, Band: 2}, {Every: mostAging}, {Every: 2, Band: 1 << 62}} {
		r := (&Engine{Ledger: &MemoryLedger{}, Navigator: &firstFit{}, Aging: aging}).Pass(t.Context())
		require.Len(t, r.Errors, 1, "%v", aging)
		require.ErrorIs(t, r.Errors[0], ErrInvalid)
	}
	view := &View{}
	require.Equal(t, int32(7), view.Aged(&Capsule{Spec: rankedSpec(7, 1)}))
	require.Zero(t, view.Aging())
}

// Where nothing ages the queue keeps for a class and for a capsule what it kept before there was ageing.
func TestAgingTakesNoRoomInTheQueue(t *testing.T) {
	require.LessOrEqual(t, unsafe.Sizeof(readyTurn{}), uintptr(32))
	require.LessOrEqual(t, unsafe.Sizeof(entry{}), uintptr(24))
}

// BenchmarkQueue takes and gives back batches of 100 of 100,000 capsules that wait, in many classes or few.
func BenchmarkQueue(b *testing.B) {
	for _, classes := range []int{10, 10_000} {
		for name, aging := range map[string]Aging{"off": {}, "on": {Every: time.Second}} {
			b.Run(fmt.Sprintf("classes=%d/aging=%s", classes, name), func(b *testing.B) {
				l := &MemoryLedger{}
				for i := range classes {
					spec := wants(1)
					spec.Priority, spec.Module = int32(i%7), fmt.Sprint(i)
					commit(b, l, Submit{IDs: names(fmt.Sprint(i, "-"), 100_000/classes), Spec: spec, At: Instant(i + 1)})
				}
				q := queue{aging: aging.book()}
				s := snapshotOf(b, l)
				q.clear(s)
				for slot, c := range s.capsuleSlots() {
					q.push(slot, c)
				}
				b.ReportAllocs()
				for b.Loop() {
					q.turn(100, s, false)
					if len(q.take(100)) != 100 {
						b.Fatal("less than there is")
					}
				}
			})
		}
	}
}
