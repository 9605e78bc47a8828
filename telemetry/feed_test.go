package telemetry_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/lease"
	"github.com/orbitsched/orbit/telemetry"
)

// connection is one direction between two boards, which can be cut.
type connection struct {
	cut  context.CancelFunc
	done sync.WaitGroup
	errs [2]error
	sent counting
}

// counting counts what is written to a connection.
type counting struct {
	net.Conn
	bytes atomic.Int64
}

func (c *counting) Write(p []byte) (int, error) {
	c.bytes.Add(int64(len(p)))
	return c.Conn.Write(p)
}

func feed(from, to *telemetry.Board) *connection {
	ctx, cancel := context.WithCancel(context.Background())
	c := &connection{cut: cancel}
	out, in := net.Pipe()
	c.sent.Conn = out
	c.done.Go(func() { c.errs[0] = from.Feed(ctx, &c.sent) })
	c.done.Go(func() { c.errs[1] = to.Follow(ctx, in) })
	return c
}

func (c *connection) end() {
	c.cut()
	c.done.Wait()
}

func drawReport(t *rapid.T, node orbit.NodeID) orbit.Report {
	few := []string{"a", "b", "c"}
	return orbit.Report{
		Node: node, At: time.Now(), Term: orbit.Revision(time.Now().Unix() / 8), CPUPercent: float64(rapid.IntRange(0, 3).Draw(t, "cpu")),
		FreeSlots: rapid.IntRange(0, 3).Draw(t, "slots"), Usage: orbit.Resources{orbit.CPU: int64(rapid.IntRange(0, 1).Draw(t, "usage"))},
		Warm:      rapid.MapOfN(rapid.SampledFrom(few), rapid.IntRange(0, 2), 0, 3).Draw(t, "warm"),
		Templates: rapid.SliceOfNDistinct(rapid.SampledFrom(few), 0, 3, rapid.ID).Draw(t, "templates"),
		Volumes:   rapid.SliceOfNDistinct(rapid.SampledFrom(few), 0, 3, rapid.ID).Draw(t, "volumes"),
	}
}

// Boards that are connected in a row know the newest report of every node, as its node gave it, two seconds after the last trouble,
// whichever board it was sent to, and whenever connections were cut.
func TestFeedAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { rapid.SyncTest(t, feedWorld) })
}

func feedWorld(t *rapid.T) {
	boards := make([]*telemetry.Board, 3)
	for i := range boards {
		boards[i] = &telemetry.Board{}
	}
	lines := make([]*connection, 4)
	connect := func(i int) {
		if lines[i] != nil {
			lines[i].end()
		}
		ends := [][2]int{{0, 1}, {1, 0}, {1, 2}, {2, 1}}[i]
		lines[i] = feed(boards[ends[0]], boards[ends[1]])
	}
	for i := range lines {
		connect(i)
	}
	defer func() {
		for _, c := range lines { // or a failure of the test would be reported as a deadlock of the bubble
			c.end()
		}
	}()
	nodes := []orbit.NodeID{"n0", "n1", "n2"}
	known := map[orbit.NodeID]orbit.Report{}
	for range rapid.IntRange(1, 30).Draw(t, "steps") {
		time.Sleep(time.Duration(rapid.IntRange(1, 3000).Draw(t, "wait")) * time.Millisecond)
		node := rapid.SampledFrom(nodes).Draw(t, "node")
		at := rapid.IntRange(0, 2).Draw(t, "board")
		switch rapid.SampledFrom([]string{"report", "report", "report", "beat", "cut", "forget"}).Draw(t, "what") {
		case "report":
			known[node] = drawReport(t, node)
			require.NoError(t, boards[at].Report(known[node]))
		case "beat":
			if r, ok := known[node]; ok {
				r.At = time.Now()
				known[node] = r
				require.NoError(t, boards[at].Report(r))
			}
		case "cut":
			connect(rapid.IntRange(0, 3).Draw(t, "line"))
		case "forget":
			time.Sleep(3 * time.Second) // all know it, or a board would learn of it again from one that has not heard
			boards[at].Forget(node)
			delete(known, node)
			time.Sleep(3 * time.Second)
		}
	}
	time.Sleep(3 * time.Second)
	for i, b := range boards {
		require.Equal(t, len(known), b.Stats().Nodes, "board %d", i)
		for node, r := range known {
			got, ok := b.Latest(node)
			require.True(t, ok)
			requireSame(t, r, got)
		}
	}
	for _, c := range lines {
		c.end()
		require.Equal(t, [2]error{}, c.errs)
	}
}

// requireSame compares two reports as sets of words.
func requireSame(t require.TestingT, want, got orbit.Report) {
	require.True(t, want.At.Equal(got.At), "%v %v", want.At, got.At)
	require.ElementsMatch(t, want.Templates, got.Templates)
	require.ElementsMatch(t, want.Volumes, got.Volumes)
	require.Len(t, got.Warm, len(want.Warm))
	for template, n := range want.Warm {
		require.Equal(t, n, got.Warm[template])
	}
	require.Equal(t, [4]any{want.Term, want.Usage, want.CPUPercent, want.FreeSlots}, [4]any{got.Term, got.Usage, got.CPUPercent, got.FreeSlots})
}

// A heartbeat costs some tens of bytes, whatever the report has. A change arrives at once and wakes an engine's wait; a heartbeat arrives
// within a second and is no change.
func TestFeedSendsDifferences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := &telemetry.Board{}, &telemetry.Board{}
		c := feed(here, there)
		defer c.end()
		r := orbit.Report{Node: "host", FreeSlots: 1, Warm: map[string]int{}}
		for i := range 100 {
			r.Templates = append(r.Templates, fmt.Sprintf("template-%03d", i))
			r.Warm[r.Templates[i]] = i
		}
		send := func(change func()) int {
			time.Sleep(3 * time.Second)
			before := c.sent.bytes.Load()
			change()
			r.At = time.Now()
			require.NoError(t, here.Report(r))
			time.Sleep(feedDelay)
			return int(c.sent.bytes.Load() - before)
		}
		send(func() {})
		_, version, err := there.Reports(t.Context(), 0)
		require.NoError(t, err)
		require.NotZero(t, version)
		require.Less(t, send(func() {}), 60)
		time.Sleep(time.Second)
		at, _ := there.Latest("host")
		require.True(t, r.At.Equal(at.At))
		news, version, err := there.Reports(t.Context(), version)
		require.NoError(t, err)
		require.Empty(t, news, "a heartbeat is no change")
		woken := make(chan time.Time, 1)
		go func() {
			if there.Wait(t.Context(), version) == nil {
				woken <- time.Now()
			}
		}()
		require.Less(t, send(func() { r.Warm = map[string]int{r.Templates[3]: 7}; r.Templates = r.Templates[:4] }), 2500)
		require.Less(t, send(func() { r.Warm = map[string]int{r.Templates[3]: 8} }), 100)
		require.LessOrEqual(t, (<-woken).Sub(r.At), feedDelay)
		require.EqualValues(t, 4, there.Stats().Fed)
	})
}

const feedDelay = 20 * time.Millisecond

// What a board knows already, from wherever, is no change and no refusal when it comes again, also if it is stale by now.
func TestFeedOfWhatIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := &telemetry.Board{}, &telemetry.Board{}
		require.NoError(t, here.Report(orbit.Report{Node: "host", At: time.Now()}))
		var version uint64
		for range 3 {
			one, two := feed(here, there), feed(there, here)
			time.Sleep(40 * time.Second)
			one.end()
			two.end()
			_, next, err := there.Reports(t.Context(), 0)
			require.NoError(t, err)
			require.True(t, version == 0 || version == next)
			version = next
		}
		require.Equal(t, telemetry.Stats{Nodes: 1, Reports: 1, Changed: 1}, here.Stats())
		require.Equal(t, telemetry.Stats{Nodes: 1, Reports: 1, Changed: 1, Fed: 1}, there.Stats())
	})
}

// A connection whose other end is silent, or takes nothing, fails after ten seconds; one that is closed fails at once. Feed and Follow
// return nil when their context ends.
func TestFeedEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &telemetry.Board{}
		out, in := net.Pipe()
		began := time.Now()
		require.Error(t, b.Feed(t.Context(), out))
		require.Error(t, b.Follow(t.Context(), in))
		require.Equal(t, 20*time.Second, time.Since(began))
		require.NoError(t, out.Close())
		require.ErrorIs(t, b.Feed(t.Context(), out), io.ErrClosedPipe)
		require.ErrorIs(t, b.Follow(t.Context(), strings.NewReader("{\"board\":2}\n")), io.ErrUnexpectedEOF)
		_, in = net.Pipe()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.NoError(t, b.Follow(ctx, in))
		out, _ = net.Pipe()
		ended, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.NoError(t, b.Feed(ended, out))
		_, err := out.Write(nil)
		require.ErrorIs(t, err, io.ErrClosedPipe, "it was closed")
	})
}

// What is not a feed is refused. What a node could not report, another board cannot either.
func TestFollowBelievesNoMoreThanItMust(t *testing.T) {
	const first = `{"board":2}` + "\n"
	now := time.Now().UnixNano()
	for name, text := range map[string]string{
		"another format":   `{"board":1}` + "\n",
		"no format":        `{"n":1,"node":"a","at":5}` + "\n",
		"no JSON":          first + "hello\n",
		"no name":          first + `{"n":1,"at":5}` + "\n",
		"a number again":   first + `{"n":1,"node":"a","at":5}` + "\n" + `{"n":1,"node":"b","at":5}` + "\n",
		"too many nodes":   first + `{"n":1,"node":"a","at":5}` + "\n" + `{"n":2,"node":"b","at":5}` + "\n" + `{"n":3,"node":"c","at":5}` + "\n",
		"a line too long":  first + strings.Repeat("x", 1<<23),
		"gone and renamed": first + `{"n":1,"node":"a","at":5}` + "\n" + `{"n":1,"gone":true}` + "\n" + `{"n":1,"at":6}` + "\n",
	} {
		b := &telemetry.Board{MaxNodes: 2}
		require.ErrorIs(t, b.Follow(t.Context(), strings.NewReader(text)), orbit.ErrInvalid, name)
	}
	b := &telemetry.Board{MaxNodes: 2}
	require.NoError(t, b.Report(orbit.Report{Node: "own", At: time.Unix(0, now)}))
	text := first + fmt.Sprintf(`{"n":1,"node":"a","at":%d,"slots":-1}
{"n":2,"node":"b","at":%d}
`, now, math.MaxInt64)
	require.ErrorIs(t, b.Follow(t.Context(), strings.NewReader(text)), io.ErrUnexpectedEOF)
	require.ErrorIs(t, b.Follow(t.Context(), strings.NewReader(first+fmt.Sprintf(`{"n":1,"node":"a","at":%d}
{"n":2,"node":"b","at":%d}
`, now, now))), io.ErrUnexpectedEOF)
	s := b.Stats()
	require.Equal(t, telemetry.Stats{Nodes: 2, Reports: 2, Changed: 2, Fed: 1, Invalid: 1, Full: 1}, s)
}

// The clocks of two processes, and that of the node, have nothing to do with each other. A report is as old on the other
// board as on the first one, also if it was old when the connection began; what has come back to a board is ignored.
func TestFeedBetweenClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		off := func(by time.Duration) func() time.Time { return func() time.Time { return time.Now().Add(by) } }
		one, two := &telemetry.Board{Now: off(time.Hour)}, &telemetry.Board{Now: off(-time.Hour)}
		age := func(b *telemetry.Board) time.Duration {
			r, known := b.Latest("a")
			require.True(t, known)
			return b.Now().Sub(r.Received)
		}
		node := off(-1000 * time.Hour)
		require.NoError(t, one.Report(report("a", node())))
		time.Sleep(25 * time.Second)
		connect(t, one, two)
		connect(t, two, one)
		synctest.Wait()
		require.Equal(t, 25*time.Second, age(two), "it was old when the connection began")
		time.Sleep(20 * time.Second)
		require.Equal(t, 45*time.Second, age(one))
		require.Equal(t, 45*time.Second, age(two))
		require.Equal(t, uint64(1), one.Stats().Reports, "it came back and was ignored")

		node = off(-2000 * time.Hour) // set back; the known report is stale
		for range 5 {
			require.NoError(t, two.Report(report("a", node())))
			time.Sleep(10 * time.Second)
			require.Equal(t, 10*time.Second, age(two))
			require.LessOrEqual(t, age(one)-10*time.Second, time.Second, "a heartbeat is passed on within a second")
		}
		require.Equal(t, uint64(5), one.Stats().Fed)
	})
}

// connect lets a board follow another one until the test ends.
func connect(t *testing.T, from, to *telemetry.Board) {
	out, in := net.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	var both sync.WaitGroup
	both.Go(func() { _ = from.Feed(ctx, out) })
	both.Go(func() { _ = to.Follow(ctx, in) })
	t.Cleanup(func() { cancel(); both.Wait() })
}

// lastWrite takes one write, and then ends what writes.
type lastWrite struct {
	io.Writer
	end func()
}

func (w lastWrite) Write(p []byte) (int, error) {
	defer w.end()
	return w.Writer.Write(p)
}

func FuzzFollow(f *testing.F) {
	var out bytes.Buffer
	b := &telemetry.Board{}
	require.NoError(f, b.Report(orbit.Report{Node: "a", At: time.Now(), FreeSlots: 3, Warm: map[string]int{"t": 1}, Templates: []string{"t"}}))
	ctx, cancel := context.WithCancel(f.Context())
	require.NoError(f, b.Feed(ctx, lastWrite{&out, cancel}))
	require.Contains(f, out.String(), `"warm":{"t":1}`)
	f.Add(out.Bytes())
	f.Add([]byte("{\"board\":2}\n{\"n\":1,\"node\":\"a\",\"at\":1}\n{\"n\":1,\"warm\":{\"t\":-1},\"gone\":true}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		b := &telemetry.Board{MaxNodes: 3}
		if err := b.Follow(t.Context(), bytes.NewReader(text)); err == nil || !errors.Is(err, orbit.ErrInvalid) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatal(err)
		}
		require.LessOrEqual(t, b.Stats().Nodes, 3)
	})
}

// A node reports to one process, and navigators of another one see it as live, as soon as that knows its lease. When the lease ends, and
// when its row is swept, both boards say so.
func TestFeedWithLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger := &orbit.MemoryLedger{}
		one, two := &lease.Keeper{Ledger: ledger}, &lease.Keeper{Ledger: ledger, TTL: time.Hour} // it relies on the other
		here, there := &telemetry.Board{Leases: one}, &telemetry.Board{Leases: two}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		all.Go(func() { _ = one.Run(ctx) })
		c := feed(here, there)
		defer c.end()
		term, err := one.Acquire(ctx, "host", "agent")
		require.NoError(t, err)
		require.NoError(t, here.Report(orbit.Report{Node: "host", Term: term.Epoch, At: time.Now()}))
		time.Sleep(3 * time.Second)
		_, known := there.Latest("host")
		require.False(t, known, "it does not know the lease")
		all.Go(func() { _ = two.Run(ctx) })
		time.Sleep(3 * time.Second)
		r, known := there.Latest("host")
		require.True(t, known)
		require.False(t, r.Expired)
		time.Sleep(2 * time.Minute)
		r, known = there.Latest("host")
		require.True(t, known)
		require.True(t, r.Expired)
		time.Sleep(2 * time.Hour)
		for _, b := range []*telemetry.Board{here, there} {
			_, _, err := b.Reports(ctx, 0)
			require.NoError(t, err)
			require.Zero(t, b.Stats().Nodes)
		}
	})
}

// However much there is to send, a connection fails when the other end takes nothing for 10 s, and does not while it takes something.
func TestFeedToASlowReader(t *testing.T) {
	for name, takes := range map[string]bool{"nothing": false, "something": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &telemetry.Board{}
				for i := range 2000 {
					require.NoError(t, b.Report(orbit.Report{Node: orbit.NodeID(fmt.Sprint("node-", i)), At: time.Now(), FreeSlots: i + 1}))
				}
				out, in := net.Pipe()
				ctx, cancel := context.WithCancel(t.Context())
				failed := make(chan error, 1)
				go func() { failed <- b.Feed(ctx, out) }()
				if takes {
					go func() {
						buffer := make([]byte, 4096)
						for err := error(nil); err == nil; time.Sleep(4 * time.Second) {
							_, err = in.Read(buffer)
						}
					}()
				}
				time.Sleep(11 * time.Second)
				synctest.Wait()
				select {
				case err := <-failed:
					require.ErrorContains(t, err, "timeout")
					require.False(t, takes)
				default:
					require.True(t, takes, "Feed has not returned")
				}
				cancel()
				_ = in.Close()
				time.Sleep(time.Minute)
			})
		})
	}
}

// A board that is full is sent a node that is gone before the one that takes its place.
func TestFeedBetweenFullBoards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := &telemetry.Board{MaxNodes: 2}, &telemetry.Board{MaxNodes: 2}
		report := func(node orbit.NodeID) {
			require.NoError(t, from.Report(orbit.Report{Node: node, At: time.Now()}))
		}
		report("a")
		report("b")
		c := feed(from, to)
		defer c.end()
		time.Sleep(100 * time.Millisecond)
		from.Forget("a")
		report("c")
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		_, stays := to.Latest("b")
		_, comes := to.Latest("c")
		require.True(t, stays && comes)
		require.NoError(t, errors.Join(c.errs[:]...))
	})
}

// A node whose clock was set back is forgotten, and reports again at once: so it does on the other board.
func TestFeedOfAClockThatWasSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := &telemetry.Board{}, &telemetry.Board{}
		require.NoError(t, from.Report(orbit.Report{Node: "n", At: time.Now().Add(8 * time.Second)}))
		c := feed(from, to)
		defer c.end()
		time.Sleep(300 * time.Millisecond)
		from.Forget("n")
		require.NoError(t, from.Report(orbit.Report{Node: "n", At: time.Now(), FreeSlots: 7}))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		r, _ := to.Latest("n")
		require.Equal(t, 7, r.FreeSlots)
	})
}
