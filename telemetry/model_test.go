package telemetry_test

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/telemetry"
)

// model is the dumb board: all reports, and for each of a few readers the nodes it has yet to hear of.
//
// The clock of each node is off by a fixed time. A report may be 9 s on its way, but some are on their way for no time
// at all, so the board can know by how much the clock is off, to within half a second.
type model struct {
	known   map[orbit.NodeID]orbit.Report
	off     map[orbit.NodeID]time.Duration
	quick   map[orbit.NodeID]time.Time // when the last report came that was on its way for no time
	claims  []modelClaim
	unheard [2]map[orbit.NodeID]bool
	version [2]uint64
}

// between lies between the time of a claim and that of the reports before it, which are sent at whole seconds.
const between = 500 * time.Millisecond

// modelClaim is a claim that no report has ended.
type modelClaim struct {
	node     orbit.NodeID
	at       time.Time
	template string // of which it took a warm slot, or has none
	lacking  bool
	vacated  bool // it takes no slot any more
	claim    telemetry.Claim
	made     int
}

// shown is what readers must see.
func (m *model) shown(id orbit.NodeID) orbit.Report {
	r := m.known[id]
	r.Warm = maps.Clone(r.Warm)
	for _, c := range m.claims {
		switch {
		case c.node != id:
		case c.lacking && r.Warm[c.template] > 0:
			r.Warm[c.template] = 0
		case !c.lacking:
			if !c.vacated {
				r.FreeSlots = max(0, r.FreeSlots-1)
			}
			if r.Warm[c.template] > 0 {
				r.Warm[c.template]--
			}
		}
	}
	return r
}

func (m *model) changed(id orbit.NodeID) {
	for _, u := range m.unheard {
		u[id] = true
	}
}

// report is a report that was sent at a time, by the board's clock.
func (m *model) report(r orbit.Report, sent, now time.Time, bound time.Duration) (taken bool) {
	old, ok := m.known[r.Node]
	stale := now.Sub(old.Received) >= bound
	if ok && r.At.Before(old.At) {
		return false
	}
	before := len(m.claims)
	m.claims = slices.DeleteFunc(m.claims, func(c modelClaim) bool { return c.node == r.Node && c.at.Before(sent) })
	if !ok || stale || len(m.claims) < before || old.FreeSlots != r.FreeSlots || !maps.Equal(old.Warm, r.Warm) || !slices.Equal(old.Volumes, r.Volumes) {
		m.changed(r.Node)
	}
	r.Received = now
	m.known[r.Node] = r
	return true
}

// Whatever is reported and forgotten, each reader gets exactly the nodes that have changed since it last
// asked, each once, with their newest report.
func TestBoardAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, c := newBoard()
		made, ever := 0, []modelClaim(nil)
		off := map[orbit.NodeID]time.Duration{"a": 0, "b": 1000 * time.Hour, "c": -7 * time.Second}
		m := model{known: map[orbit.NodeID]orbit.Report{}, off: off, quick: map[orbit.NodeID]time.Time{}, unheard: [2]map[orbit.NodeID]bool{{}, {}}}
		node := rapid.SampledFrom([]orbit.NodeID{"a", "b", "c"})
		t.Repeat(map[string]func(*rapid.T){
			"report": func(t *rapid.T) {
				id, sent := node.Draw(t, "node"), c.now
				if m.quick[id].After(c.now.Add(-5 * time.Minute)) {
					sent = sent.Add(-time.Duration(rapid.IntRange(0, 9).Draw(t, "way")) * time.Second)
				}
				if sent.Equal(c.now) {
					m.quick[id] = c.now
				}
				r := orbit.Report{
					Node:      id,
					At:        sent.Add(m.off[id]),
					FreeSlots: rapid.IntRange(0, 2).Draw(t, "slots"),
					Warm:      rapid.MapOfN(rapid.SampledFrom([]string{"x", "y"}), rapid.IntRange(0, 2), 0, 2).Draw(t, "warm"),
					Volumes:   rapid.SampledFrom([][]string{nil, {"v"}, {"v", "w"}}).Draw(t, "volumes"),
				}
				taken := m.report(r, sent, c.now, b.StaleAfter())
				require.Equal(t, taken, b.Report(r) == nil)
			},
			"wait": func(t *rapid.T) {
				c.now = c.now.Add(time.Duration(rapid.IntRange(1, 31).Draw(t, "seconds")) * time.Second)
			},
			"forget": func(t *rapid.T) {
				id := node.Draw(t, "node")
				b.Forget(id)
				delete(m.known, id)
				delete(m.quick, id)
				m.claims = slices.DeleteFunc(m.claims, func(c modelClaim) bool { return c.node == id })
				for _, u := range m.unheard {
					delete(u, id)
				}
			},
			"claim": func(t *rapid.T) {
				id, template := node.Draw(t, "node"), rapid.SampledFrom([]string{"x", "y"}).Draw(t, "template")
				_, known := m.known[id]
				warm := m.shown(id).Warm[template] > 0
				c.now = c.now.Add(between)
				claim := b.Claim(id, template)
				c.now = c.now.Add(-between)
				require.Equal(t, warm, claim.Warm())
				made++
				if !warm {
					template = ""
				}
				if known {
					m.claims = append(m.claims, modelClaim{node: id, at: c.now.Add(between), template: template, claim: claim, made: made})
					m.changed(id)
				}
				ever = append(ever, modelClaim{claim: claim, made: made})
			},
			"unclaim": func(t *rapid.T) {
				if len(ever) == 0 {
					t.Skip("none was made")
				}
				old := rapid.SampledFrom(ever).Draw(t, "claim")
				b.Unclaim(old.claim)
				m.claims = slices.DeleteFunc(m.claims, func(c modelClaim) bool {
					if c.made == old.made && !c.lacking && !c.vacated {
						m.changed(c.node)
						return true
					}
					return false
				})
			},
			"vacate": func(t *rapid.T) {
				if len(ever) == 0 {
					t.Skip("none was made")
				}
				old := rapid.SampledFrom(ever).Draw(t, "claim")
				i := slices.IndexFunc(m.claims, func(c modelClaim) bool { return c.made == old.made && !c.lacking && !c.vacated })
				require.Equal(t, i >= 0, b.Holds(old.claim))
				b.Vacate(old.claim)
				require.False(t, b.Holds(old.claim))
				if i < 0 {
					return
				}
				m.changed(m.claims[i].node)
				if m.claims[i].vacated = true; m.claims[i].template == "" { // nothing is left of it
					m.claims = slices.Delete(m.claims, i, i+1)
				}
			},
			"exhausted": func(t *rapid.T) {
				id, template := node.Draw(t, "node"), rapid.SampledFrom([]string{"x", "y"}).Draw(t, "template")
				c.now = c.now.Add(between)
				b.Exhausted(id, template)
				c.now = c.now.Add(-between)
				if _, known := m.known[id]; known {
					m.claims = append(m.claims, modelClaim{node: id, at: c.now.Add(between), template: template, lacking: true})
					m.changed(id)
				}
			},
			"read": func(t *rapid.T) {
				i := rapid.IntRange(0, 1).Draw(t, "reader")
				m.read(t, b, i)
			},
			"": func(t *rapid.T) {
				require.Equal(t, len(m.known), b.Stats().Nodes)
				for id := range m.known {
					r := m.shown(id)
					latest, ok := b.Latest(id)
					require.True(t, ok)
					require.True(t, latest.At.Equal(r.At))
					require.Equal(t, r.FreeSlots, latest.FreeSlots)
					require.True(t, maps.Equal(r.Warm, latest.Warm), "%v %v", r.Warm, latest.Warm)
				}
			},
		})
	})
}

func (m *model) read(t *rapid.T, b *telemetry.Board, i int) {
	reports, version, err := b.Reports(context.Background(), m.version[i])
	require.NoError(t, err)
	require.GreaterOrEqual(t, version, m.version[i])
	got := map[orbit.NodeID]bool{}
	for _, r := range reports {
		require.False(t, got[r.Node], "a node is reported once")
		got[r.Node] = true
		require.True(t, m.known[r.Node].At.Equal(r.At))
		require.True(t, maps.Equal(m.shown(r.Node).Warm, r.Warm))
	}
	require.Equal(t, m.unheard[i], got)
	m.unheard[i], m.version[i] = map[orbit.NodeID]bool{}, version
}
