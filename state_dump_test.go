package orbit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func dumpOf(t require.TestingT, s *State) string {
	var out bytes.Buffer
	require.NoError(t, s.Dump(&out))
	return out.String()
}

// keeper adds to a chaos what else a state keeps: gangs, marks with long values, notes.
type keeper struct{ *chaos }

func (k *keeper) gang(t *rapid.T) {
	k.serial++
	id := func(i int) CapsuleID { return CapsuleID(fmt.Sprintf("g%d-%d", k.serial, i)) }
	g := &Gang{ID: GangID(fmt.Sprint("g", k.serial)), Levels: []string{"zone"}, Loose: rapid.Bool().Draw(t, "loose"), Roles: []Role{
		{Name: "head", Spec: chaosSpecs[0], Members: []CapsuleID{id(0)}},
		{Name: "worker", Spec: chaosSpecs[2], Members: []CapsuleID{id(1), id(2)}, Min: 1},
	}}
	k.try(Submit{Gang: g, Owner: "me", At: Instant(k.serial), Labels: map[string]string{"gang": string(g.ID)}})
	if n := k.nodeID(t); rapid.Bool().Draw(t, "place") {
		k.try(Place{Capsule: id(0), Node: n, Note: "first", At: 1}, Place{Capsule: id(1), Node: n})
	}
}

func (k *keeper) mark(t *rapid.T) {
	key := rapid.SampledFrom([]string{"lease/a", "lease/b", "失"}).Draw(t, "key")
	k.try(Mark{Key: key, Value: strings.Repeat("<é\u2028", rapid.SampledFrom([]int{0, 1, 100}).Draw(t, "length"))})
}

func keeperActions(k *keeper) map[string]func(*rapid.T) {
	actions := k.actions()
	actions["gang"], actions["gang more"], actions["mark"], actions["mark more"] = k.gang, k.gang, k.mark, k.mark
	return actions
}

// kept returns a state with something of everything in it.
func kept(t require.TestingT) *State {
	l := &MemoryLedger{Bounds: Limits{ProposalIDs: 4}, Dimensions: [Dimensions]string{4: "licences"}}
	n := racked("a", "1")
	n.Devices = Devices{Model: "gpu", Count: 2, Unhealthy: 2}
	commit(t, l, PutNode{n}, PutNode{machine("b", 10)})
	commit(t, l, Submit{IDs: []CapsuleID{"c", "d", "e", "gone"}, Spec: chaosSpecs[4], Owner: "me", At: 5, Labels: map[string]string{"team": "a"}})
	g := &Gang{ID: "g", Roles: []Role{{Name: "r", Spec: chaosSpecs[2], Members: []CapsuleID{"m1", "m2"}, Min: 1}}, Levels: []string{"rack"}}
	commit(t, l, Submit{Gang: g}, Mark{Key: "k", Value: "v"}, Mark{Key: "l", Value: "w"})
	commit(t, l, Place{Capsule: "c", Node: "a", Devices: 1, Note: "warm", At: 6}, Release{Capsule: "gone", Final: true})
	for i := range 3 {
		_, err := l.Propose(context.Background(), Proposal{ID: ProposalID{9, byte(i)}, Do: []Commitment{Place{Capsule: "d", Node: "a", Devices: 1}}})
		require.NoError(t, err)
		_, err = l.Propose(context.Background(), Proposal{ID: ProposalID{8, byte(i)}, Do: []Commitment{Release{Capsule: "d", Stopped: true}}})
		require.NoError(t, err)
	}
	commit(t, l, Hold{ID: "h", Node: "a", Room: Resources{CPU: 1}, For: "x", Ends: time.Unix(2000, 7)},
		Hold{ID: "i", Node: "b", Room: Resources{CPU: 1}, Ends: time.Unix(3000, 0)})
	return snapshotOf(t, l)
}

// A state that has been dumped and restored is the same state: equal dumps, sound, with the same answer to
// every proposal; and two ledgers that start from the two go on alike, above the old revisions.
func TestRestoredStateEqualsTheDumped(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := &keeper{newChaos(t)}
		t.Repeat(keeperActions(k))
		state := snapshotOf(t, k.ledger)
		text := dumpOf(t, state)
		restored, err := restoreFrom(strings.NewReader(text))
		require.NoError(t, err)
		require.NoError(t, restored.Verify())
		require.Equal(t, text, dumpOf(t, restored))
		require.Equal(t, state.Revision(), restored.Revision())
		twin := &chaos{ledger: &MemoryLedger{Start: restored}, now: k.now, serial: k.serial}
		k.ledger = &MemoryLedger{Start: state}
		goOnAlike(t, k, twin)
	})
}

// goOnAlike lets one chaos run on and repeats on its twin what was proposed.
func goOnAlike(t *rapid.T, k *keeper, twin *chaos) {
	before := snapshotOf(t, k.ledger)
	t.Repeat(keeperActions(k))
	changes, err := k.ledger.Changes(context.Background(), before.Revision())
	if errors.Is(err, ErrCompacted) {
		return
	}
	require.NoError(t, err)
	for len(changes) > 0 {
		p := Proposal{ID: changes[0].ID, View: changes[0].Revision - 1}
		want := changes[0].Revision
		for len(changes) > 0 && changes[0].Revision == want {
			p.Do = append(p.Do, changes[0].Do)
			changes = changes[1:]
		}
		require.NoError(t, snapshotOf(t, twin.ledger).Check(p))
		got, err := twin.ledger.Propose(context.Background(), p)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	require.Equal(t, dumpOf(t, snapshotOf(t, k.ledger)), dumpOf(t, snapshotOf(t, twin.ledger)))
	for _, p := range probes {
		a, b := snapshotOf(t, k.ledger).Check(p), snapshotOf(t, twin.ledger).Check(p)
		require.Equal(t, fmt.Sprint(a), fmt.Sprint(b), "%+v", p)
	}
}

// probes ask for answers of every kind.
var probes = func() (out []Proposal) {
	for _, view := range []Revision{0, 10, 1 << 20} {
		for _, node := range []NodeID{"a", "b", "c", "gone"} {
			for _, id := range []CapsuleID{"k1", "k2", "k3", "k4", "g1-0", "g2-1"} {
				out = append(out, Proposal{View: view, Do: []Commitment{Place{Capsule: id, Node: node}}})
			}
			out = append(out, Proposal{View: view, Do: []Commitment{RemoveNode{Node: node}}},
				Proposal{View: view, Do: []Commitment{Mark{Key: "k"}}, If: []Precondition{GroupIn{Group: "g", Level: "zone", Domain: "x"}}},
				Proposal{View: view, Do: []Commitment{Mark{Key: "k"}}, If: []Precondition{MarkAt{Key: "lease/a", Revision: 3}}},
				Proposal{View: view, Do: []Commitment{Release{Hold: "h"}}})
		}
	}
	return out
}()

// The same proposal, sent again to the ledger that was restored, still has one effect (I12).
func TestRestoredLedgerRemembersProposals(t *testing.T) {
	state := kept(t)
	restored, err := restoreFrom(strings.NewReader(dumpOf(t, state)))
	require.NoError(t, err)
	l := &MemoryLedger{Start: restored}
	for i := range byte(3) {
		_, err = l.Propose(t.Context(), Proposal{ID: ProposalID{9, i}, Do: []Commitment{Place{Capsule: "d", Node: "a", Devices: 1}}})
		require.NoError(t, err)
		_, err = l.Propose(t.Context(), Proposal{ID: ProposalID{8, i}, Do: []Commitment{Release{Capsule: "d", Stopped: true}}})
		require.NoError(t, err)
	}
	assert.Equal(t, state.Revision(), snapshotOf(t, l).Revision(), "nothing happened")
	rev := commit(t, l, Mark{Key: "new", Value: "v"})
	assert.Equal(t, state.Revision()+1, rev)
	assert.Equal(t, "licences", restored.DimensionName(4))
	h, _ := restored.Hold("h")
	assert.True(t, h.Ends.Equal(time.Unix(2000, 7)))
}

// Whatever a ledger takes, its dump can be written and read back: marks and notes as long as they may be, an
// end of a hold long ago.
func TestDumpTakesWhatALedgerTakes(t *testing.T) {
	for name, do := range map[string]Commitment{
		"long mark":    Mark{Key: strings.Repeat("k", 253), Value: strings.Repeat("v", 4096)},
		"long note":    Place{Capsule: "c", Node: "n", Note: strings.Repeat("n", 4096)},
		"ancient hold": Hold{ID: "h", Node: "n", Room: Resources{1}, Ends: time.Date(-5, 1, 1, 0, 0, 0, 0, time.UTC)},
		"latest hold":  Hold{ID: "h", Node: "n", Room: Resources{1}, Ends: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)},
	} {
		t.Run(name, func(t *testing.T) {
			l := &MemoryLedger{}
			commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"c"}, Spec: wants(1)})
			if _, err := l.Propose(t.Context(), Proposal{Do: []Commitment{do}}); err != nil {
				require.ErrorIs(t, err, ErrInvalid)
				return
			}
			text := dumpOf(t, snapshotOf(t, l))
			restored, err := restoreFrom(strings.NewReader(text))
			require.NoError(t, err)
			require.Equal(t, text, dumpOf(t, restored))
		})
	}
}

// refused requires that a text is no dump, for a reason that names the line.
func refused(t *testing.T, text string, line int, what string) {
	t.Helper()
	s, err := restoreFrom(strings.NewReader(text))
	if !assert.ErrorIs(t, err, ErrInvalid, "%s", what) {
		return
	}
	assert.Nil(t, s)
	if line > 0 {
		assert.ErrorContains(t, err, fmt.Sprintf("line %d", line), what)
	}
}

// A dump cut short anywhere, within a line or between two, is refused and the line named.
func TestTruncatedDumpIsRefused(t *testing.T) {
	text := dumpOf(t, kept(t))
	for at := range len(text) - 1 {
		line := strings.Count(text[:at], "\n") + 1
		if at == 0 || text[at-1] == '\n' {
			line-- // ends after that line
		}
		if text[at] == '\n' {
			line = 0 // only the newline is missing
			if strings.Count(text[:at], "\n") == strings.Count(text, "\n")-1 {
				continue
			}
		}
		refused(t, text[:at], line, fmt.Sprintf("cut at byte %d", at))
	}
}

// edited returns the dump with line i replaced by others, and the count in the last line made right.
func edited(lines []string, i int, by ...string) string {
	out := append(append(append([]string{}, lines[:i]...), by...), lines[i+1:]...)
	if i < len(lines)-1 {
		out[len(out)-1] = fmt.Sprintf(`{"end":%d}`, len(out)-1)
	}
	return strings.Join(out, "\n") + "\n"
}

// Whatever is out of place is refused with the line named: a line twice, a field that is not known, a record
// too many on a line, text behind it, an empty line, no JSON.
func TestGarbledDumpIsRefused(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(dumpOf(t, kept(t))), "\n")
	kinds := map[string]bool{}
	for i, line := range lines {
		kind, _, _ := strings.Cut(line[2:], `"`)
		kinds[kind] = true
		what := fmt.Sprintf("line %d: %s", i+1, kind)
		refused(t, edited(lines, i, line, line), i+2, "duplicate of "+what)
		refused(t, edited(lines, i, line, ""), i+2, "empty line after "+what)
		refused(t, edited(lines, i, line[:len(line)-1]+`,"who":1}`), i+1, "unknown field in "+what)
		if kind != "end" {
			refused(t, edited(lines, i, strings.Replace(line, `":{"`, `":{"who":1,"`, 1)), i+1, "unknown inner field in "+what)
		}
		for _, tail := range []string{"}", "]", "x", "{}", line} {
			refused(t, edited(lines, i, line+tail), i+1, fmt.Sprintf("%s followed by %.9q", what, tail))
		}
		other := `"mark":{"key":"z","value":"z","changed":1}`
		if kind == "mark" {
			other = `"recent":{"id":"01000000000000000000000000000000","at":1}`
		}
		refused(t, edited(lines, i, "{"+other+","+line[1:]), i+1, "a second record in "+what)
		for _, by := range []string{"{}", "null", "[]", "0", "{", `{"` + kind + `":null}`, `{"` + kind + `":7.5}`, "\x00"} {
			refused(t, edited(lines, i, by), i+1, what+" replaced by "+by)
		}
	}
	assert.Len(t, kinds, 9, "%v", kinds)
	refused(t, strings.Replace(strings.Join(lines, "\n"), `"version":1`, `"version":2`, 1), 1, "version")
	refused(t, "", 0, "nothing")
}

// A dump that does not add up is refused: a line left out or out of order, a number that another contradicts.
func TestDumpThatDoesNotAddUpIsRefused(t *testing.T) {
	text := dumpOf(t, kept(t))
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, `{"spec`) || strings.HasPrefix(line, `{"node":{"id":"a`) || strings.HasPrefix(line, `{"gang`) || i == 0 {
			refused(t, edited(lines, i), 0, "without "+line)
		}
	}
	for _, c := range [][2]string{
		{`"id":"c","spec":1`, `"id":"c","spec":99`},
		{`"id":"c","spec":1`, `"id":"c","spec":-1`},
		{`"id":"c","spec":1`, `"id":"c","spec":0`}, // which asks for no device
		{`"submitted":1,`, `"submitted":0,`},
		{`"submitted":1,`, `"submitted":99,`},
		{`"submitted":1,`, `"submitted":2,`}, // that of another
		{`"node":"a","devices":1`, `"node":"a","devices":3`},
		{`"node":"a","devices":1`, `"node":"b","devices":1`},
		{`"node":"a","devices":1`, `"node":"z","devices":1`},
		{`"cpu":10`, `"cpu":-10`},
		{`"ends":"1970-01-01T00:33:20.000000007Z"`, `"ends":"0001-01-01T00:00:00Z"`},
		{`"milli":400`, `"milli":1001`},
		{`"weight":`, `"weight":1e999`},
		{`"changed":`, `"changed":999999`},
		{`"usage":`, `"usage":999999`},
		{`"at":`, `"at":999999`},
		{`"at":`, `"at":0`},
		{`"changed":`, `"changed":0`},
		{`"usage":`, `"usage":0`},
		{`"specification":`, `"specification":0`},
		{`"placedAt":`, `"placedAt":0`},
		{`"recent":{"id":"08000000000000000000000000000000`, `"recent":{"id":"00000000000000000000000000000000`},
		{`{"id":"09000000000000000000000000000000"`, `{"id":"00000000000000000000000000000000"`},
		{`"capacity":[10,0,0,0,0,0,0,0]`, `"capacity":[10,0,0,0,0,0,0,0,0]`},
		{`"capacity":[10,0,0,0,0,0,0,0]`, `"capacity":[10,0]`},
		{`"capacity":[10,0,0,0,0,0,0,0]`, `"capacity":null`},
		{`"room":[1,0,0,0,0,0,0,0]`, `"room":[1]`},
		{`"id":"c","spec"`, `"ID":"c","spec"`},
		{`"id":"c","spec"`, `"id":"z","id":"c","spec"`},
		{`"key":"k"`, `"key": "k"`},
	} {
		bad := strings.Replace(text, c[0], c[1], 1)
		if strings.HasSuffix(c[0], ":") {
			_, rest, _ := strings.Cut(text, c[0])
			digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
			bad = strings.Replace(text, c[0]+rest[:digits], c[1], 1)
		}
		if bad != text {
			refused(t, bad, 0, fmt.Sprint(c))
		}
	}
}

// A reader that fails is reported as what it is.
func TestRestoreFromAFailingReader(t *testing.T) {
	boom := errors.New("boom")
	_, err := restoreFrom(iotest.ErrReader(boom))
	require.ErrorIs(t, err, boom)
	_, err = restoreFrom(iotest.OneByteReader(strings.NewReader(dumpOf(t, kept(t)))))
	require.NoError(t, err)
}

// failingWriter fails after so many bytes.
type failingWriter int

func (w *failingWriter) Write(p []byte) (int, error) {
	if *w -= failingWriter(len(p)); *w < 0 {
		return 0, errors.New("disk full")
	}
	return len(p), nil
}

func TestDumpToAFailingWriter(t *testing.T) {
	w := failingWriter(100)
	require.ErrorContains(t, kept(t).Dump(&w), "disk full")
}

// restoreAnything requires of any text: no panic; an error that says the text is invalid, or a state that is
// sound and that dumps to what restores to the same again.
func restoreAnything(t require.TestingT, text string) {
	s, err := restoreFrom(strings.NewReader(text))
	if err != nil {
		require.ErrorIs(t, err, ErrInvalid)
		return
	}
	require.NoError(t, s.Verify())
	again := dumpOf(t, s)
	restored, err := restoreFrom(strings.NewReader(again))
	require.NoError(t, err)
	require.Equal(t, again, dumpOf(t, restored))
	l := &MemoryLedger{Start: s}
	_, err = l.Propose(context.Background(), Proposal{Do: []Commitment{Submit{IDs: []CapsuleID{"brand new"}, Spec: wants(1)}}})
	require.NoError(t, err)
	require.NoError(t, snapshotOf(t, l).Verify())
}

// A capsule's line that is read the short way is one that the JSON package reads to the same record, also if a byte or two of it are
// others.
func TestPlainLines(t *testing.T) {
	short := 0
	rapid.Check(t, func(t *rapid.T) {
		k := &keeper{newChaos(t)}
		t.Repeat(keeperActions(k))
		for line := range strings.Lines(dumpOf(t, snapshotOf(t, k.ledger))) {
			text := []byte(strings.TrimSpace(line))
			if !strings.HasPrefix(line, `{"capsule"`) {
				require.False(t, plainCapsule(text, new(dumpCapsule)), line)
				continue
			}
			for range rapid.IntRange(0, 2).Draw(t, "damages") {
				at := rapid.IntRange(0, len(text)-1).Draw(t, "at")
				text[at] = rapid.SampledFrom([]byte("0019afAF\"{}:,<\x00\xff")).Draw(t, "byte")
			}
			var fast dumpCapsule
			if !plainCapsule(text, &fast) {
				continue
			}
			short++
			slow, err := decodeStrictly(text)
			require.NoError(t, err, "%s", text)
			require.Equal(t, slow.Capsule, &fast, "%s", text)
		}
	})
	require.True(t, short > 0 || testing.Short(), "no line is plain")
}

// The records of what engines place, of what was placed before elsewhere, and of gangs are read the short way.
func TestRecordsOfEnginesArePlain(t *testing.T) {
	l, now := &MemoryLedger{}, instantOf(time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC))
	n := machine("n", 100)
	n.Devices = Devices{Model: "gpu", Count: 2}
	n.Capacity[Memory], n.Confirms = 100, true
	commit(t, l, PutNode{n})
	commit(t, l, Submit{IDs: []CapsuleID{"web-1", "web-2", "web-3"}, Spec: chaosSpecs[4], Owner: "web", At: now, Labels: map[string]string{"job": "7", "task": "a/1"}})
	gang := &Gang{ID: "g", Roles: []Role{{Name: "head", Spec: chaosSpecs[2], Members: []CapsuleID{"g-0"}}, {Name: "worker", Spec: chaosSpecs[2], Members: []CapsuleID{"g-1"}}}}
	commit(t, l, Submit{Gang: gang, Owner: "batch", At: now})
	for i := range byte(3) {
		if i > 0 {
			commit(t, l, Release{Capsule: "web-1", Stopped: true})
		}
		_, err := l.Propose(t.Context(), Proposal{ID: ProposalID{1, i}, Do: []Commitment{Place{Capsule: "web-1", Node: "n", Devices: 2, Note: "warm", At: now + Instant(i)}}})
		require.NoError(t, err)
	}
	commit(t, l, Place{Capsule: "g-0", Node: "n", At: now}, Place{Capsule: "g-1", Node: "n", At: now})
	commit(t, l, Confirm{Capsule: "web-1", Since: snapshotOf(t, l).Capsule("web-1").PlacedAt, Ready: true}, Release{Capsule: "web-2", Final: true})
	count := 0
	for line := range strings.Lines(dumpOf(t, snapshotOf(t, l))) {
		if text := strings.TrimSpace(line); strings.HasPrefix(line, `{"capsule"`) {
			count++
			var fast dumpCapsule
			require.True(t, plainCapsule([]byte(text), &fast), text)
			slow, err := decodeStrictly([]byte(text))
			require.NoError(t, err)
			require.Equal(t, slow.Capsule, &fast)
		}
	}
	require.Equal(t, 5, count)
}

// Fields that Dump leaves out, or writes in another order, are not plain.
func TestPlainLinesAreStrict(t *testing.T) {
	const line = `{"capsule":{"id":"c-1","spec":0,"owner":"me","gang":"g","role":1,"node":"n","devices":3,"note":"warm","submitted":10,"changed":2,"placedAt":2,` +
		`"placedBy":"0a000000000000000000000000000000","earlier":[{"id":"0b000000000000000000000000000000","at":1}],"released":true,"begun":true,"ready":true,` +
		`"labels":{"a":"1","b":"2"},"submitTime":5,"placeTime":6}}`
	require.True(t, plainCapsule([]byte(line), new(dumpCapsule)))
	for _, c := range [][2]string{
		{`"role":1`, `"role":0`}, {`"role":1`, `"role":65536`}, {`"devices":3`, `"devices":0`}, {`"devices":3`, `"devices":65536`}, {`"warm"`, `""`},
		{`[{"id":"0b000000000000000000000000000000","at":1}]`, `[]`}, {`,"at":1}`, `,"at":1},`}, {`"released":true`, `"released":false`},
		{`{"a":"1","b":"2"}`, `{}`}, {`{"a":"1","b":"2"}`, `{"b":"2","a":"1"}`}, {`{"a":"1","b":"2"}`, `{"a":"1","a":"2"}`}, {`"b":"2"}`, `"b":"2",}`},
		{`"submitTime":5`, `"submitTime":0`}, {`"submitTime":5,"placeTime":6`, `"placeTime":6,"submitTime":5`}, {`"placeTime":6`, `"placeTime":-6`},
		{`"placedAt":2`, `"placedAt":0`}, {`"me"`, `""`}, {`"n"`, `""`}, {`"begun":true`, `"begun":false`}, {`"spec":0,`, ``}, {`"spec"`, `"Spec"`},
		{`,"owner":"me","gang":"g"`, `,"gang":"g","owner":"me"`}, {`"node":"n"`, `"node":"n","node":"n"`}, {`"node":"n"`, `"node":"n","waits":true`},
	} {
		other := strings.Replace(line, c[0], c[1], 1)
		require.NotEqual(t, line, other, c)
		require.False(t, plainCapsule([]byte(other), new(dumpCapsule)), c)
	}
}

// What a newer version has written, fields, records or another version of dumps, is called so, and not only invalid.
func TestNewerDumpIsCalledSo(t *testing.T) {
	text := dumpOf(t, kept(t))
	kinds := map[string]bool{}
	for line := range strings.Lines(text) {
		kind, _, _ := strings.Cut(line[len(`{"`):], `"`)
		if kinds[kind] || kind == "end" {
			continue
		}
		kinds[kind] = true
		for what, newer := range map[string]string{
			"field":  strings.TrimSuffix(line, "}}\n") + `,"future":{"a":1}}}` + "\n",
			"record": `{"future":{"a":1}}` + "\n",
			"both":   strings.TrimSuffix(line, "}\n") + `,"future":{"a":1}}` + "\n",
		} {
			require.NotEqual(t, line, newer)
			err := new(State).Restore(strings.NewReader(strings.Replace(text, line, newer, 1)))
			require.ErrorIs(t, err, ErrNewer, "%s: %s: %s", kind, what, newer)
			require.ErrorIs(t, err, ErrInvalid)
			require.ErrorContains(t, err, "future")
		}
	}
	require.Len(t, kinds, 8)
	err := new(State).Restore(strings.NewReader(strings.Replace(text, `"version":1`, `"version":2`, 1)))
	require.ErrorIs(t, err, ErrNewer)
	require.ErrorContains(t, err, "version 2")
	err = new(State).Restore(strings.NewReader(strings.Replace(text, `"version":1`, `"version":0`, 1)))
	require.ErrorIs(t, err, ErrInvalid)
	require.NotErrorIs(t, err, ErrNewer)
}

// Bytes flipped, lines swapped and digits changed: never a panic, and what is taken is sound.
func TestRestoreOfDamagedDumps(t *testing.T) {
	text := dumpOf(t, kept(t))
	rapid.Check(t, func(t *rapid.T) {
		damaged := []byte(text)
		for range rapid.IntRange(1, 3).Draw(t, "damages") {
			at := rapid.IntRange(0, len(damaged)-1).Draw(t, "at")
			damaged[at] = rapid.SampledFrom([]byte("0123456789\"{}[],:ab-\n\x00\xff")).Draw(t, "byte")
		}
		lines := strings.SplitAfter(string(damaged), "\n")
		if rapid.Bool().Draw(t, "swap") {
			i, j := rapid.IntRange(0, len(lines)-1).Draw(t, "i"), rapid.IntRange(0, len(lines)-1).Draw(t, "j")
			lines[i], lines[j] = lines[j], lines[i]
		}
		restoreAnything(t, strings.Join(lines, ""))
	})
}

func FuzzRestore(f *testing.F) {
	f.Add(dumpOf(f, kept(f)))
	f.Add(dumpOf(f, snapshotOf(f, &MemoryLedger{})))
	f.Fuzz(func(t *testing.T, text string) { restoreAnything(t, text) })
}

// TestRestoreIDUsedAgain: a gang goes on listing a member whose record was dropped, and the id may be another gang's by then.
func TestRestoreIDUsedAgain(t *testing.T) {
	t.Parallel()
	l := &MemoryLedger{Bounds: Limits{Terminal: 1}}
	gang := func(id GangID, members ...CapsuleID) Submit {
		return Submit{Gang: &Gang{ID: id, Roles: []Role{{Spec: &Spec{}, Members: members}}}}
	}
	commit(t, l, gang("z", "a", "b"))
	commit(t, l, Release{Capsule: "a", Final: true}, Submit{IDs: []CapsuleID{"c"}, Spec: &Spec{}})
	commit(t, l, Release{Capsule: "c", Final: true})
	commit(t, l, gang("y", "d", "a"))
	s, err := l.Snapshot(t.Context())
	require.NoError(t, err)
	var dump bytes.Buffer
	require.NoError(t, s.Dump(&dump))
	back, err := restoreFrom(&dump)
	require.NoError(t, err)
	require.Equal(t, GangID("y"), back.Capsule("a").Gang())
}

// recordOf is all that a capsule's record tells.
func recordOf(c *Capsule) storedCapsule {
	before := *c
	before.PlacedBy = ProposalID{} // Placements yields the newest, too
	return storedCapsule{
		Capsule: *c, Owner: c.Owner(), Gang: c.Gang(), Labels: c.Labels(), SubmitTime: c.SubmitTime(), Note: c.Note(),
		Remains: c.Remains(), Nomination: c.Nomination(), Borrows: c.Borrows(), Earlier: before.Placements(), Released: c.Released(),
	}
}

// rebuilt returns the state that a builder makes of the records of another.
func rebuilt(s *State) (*State, error) {
	b := stateBuilder{Revision: s.Revision(), Limits: s.Limits(), Dimensions: s.names}
	var err error
	for n := range s.Nodes() {
		err = errors.Join(err, b.Node(*n.Node, n.Usage, n.Specification))
	}
	for g := range s.Gangs() {
		err = errors.Join(err, b.Gang(g.Gang, g.Changed, g.Nomination))
	}
	for _, c := range s.inOrder() {
		err = errors.Join(err, b.Capsule(recordOf(c)))
	}
	for c, lasts := range s.Protections() {
		err = errors.Join(err, b.Protect(c.ID, lasts))
	}
	s.holds.Ascend(func(h *holdRecord) bool { err = errors.Join(err, b.Hold(h.Hold, h.changed)); return true })
	s.marks.Ascend(func(m markRecord) bool { err = errors.Join(err, b.Mark(m.key, m.value, m.changed)); return true })
	for id, at := range s.recent.All() {
		err = errors.Join(err, b.Committed(id, at))
	}
	if err != nil {
		return nil, err
	}
	return b.State()
}

// TestBuilderMakesTheSameState: the records of a state make that state again, except for when something was last removed.
func TestBuilderMakesTheSameState(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		k := &keeper{newChaos(t)}
		t.Repeat(keeperActions(k))
		s := snapshotOf(t, k.ledger)
		back, err := rebuilt(s)
		require.NoError(t, err)
		back.left = s.left
		back.order = s.order
		require.Equal(t, dumpOf(t, s), dumpOf(t, back))
	})
}

// TestBuilderRefuses: a record that makes no sense is refused, and named.
func TestBuilderRefuses(t *testing.T) {
	t.Parallel()
	for what, add := range map[string]func(b *stateBuilder) error{
		"no spec": func(b *stateBuilder) error {
			return b.Capsule(storedCapsule{Capsule: Capsule{ID: "c", Submitted: 1, Changed: 1}})
		},
		`gang "g" does not`: func(b *stateBuilder) error {
			return b.Capsule(storedCapsule{Capsule: Capsule{ID: "c", Spec: &Spec{}}, Gang: "g"})
		},
		"which has not appear": func(b *stateBuilder) error {
			return b.Capsule(storedCapsule{Capsule: Capsule{ID: "c", Spec: &Spec{}, Node: "n", Submitted: 1, PlacedAt: 1}})
		},
		"neither may be zero": func(b *stateBuilder) error { return b.Node(Node{ID: "n"}, 0, 1) },
		"no gang":             func(b *stateBuilder) error { return b.Gang(nil, 1, nil) },
		"after an error": func(b *stateBuilder) error {
			if err := b.Node(Node{ID: "n"}, 0, 1); err == nil {
				return nil
			}
			_, err := b.State()
			return err
		},
		"after an error: capsule": func(b *stateBuilder) error {
			if err := b.Capsule(storedCapsule{Capsule: Capsule{ID: "c", Spec: &Spec{}}, Gang: "g"}); err == nil {
				return nil
			}
			_, err := b.State()
			return err
		},
		"the state has been made": func(b *stateBuilder) error {
			if _, err := b.State(); err != nil {
				return err
			}
			return b.Node(Node{ID: "n"}, 1, 1)
		},
		"has no value":  func(b *stateBuilder) error { return b.Mark("k", "", 1) },
		"is not within": func(b *stateBuilder) error { return b.Capsule(storedCapsule{Capsule: Capsule{ID: "c", Spec: &Spec{}}}) },
		"in the future": func(b *stateBuilder) error {
			if err := b.Mark("k", "v", 9); err != nil {
				return err
			}
			_, err := b.State()
			return err
		},
	} {
		b := stateBuilder{Revision: 5, Limits: (&MemoryLedger{}).Limits()}
		require.ErrorContains(t, add(&b), what)
	}
	require.ErrorContains(t, (&stateBuilder{}).Mark("k", "v", 1), "limits must be positive")
	b := stateBuilder{Revision: 1 << 63, Limits: (&MemoryLedger{}).Limits()}
	_, err := b.State()
	require.ErrorContains(t, err, "leaves no room to count on")
}

// TestBuilderRefusesDoubles: ids, numbers of submission and protections are refused a second time, whether the state has the first record yet or not.
func TestBuilderRefusesDoubles(t *testing.T) {
	t.Parallel()
	capsule := func(i, order int) storedCapsule {
		return storedCapsule{Capsule: Capsule{ID: CapsuleID(fmt.Sprint("c", i)), Spec: &Spec{}, Node: "n", Submitted: uint64(order), Changed: 5, PlacedAt: 5, PlacedBy: ProposalID{1}}}
	}
	capsules := 3*builderPiece + 1
	for _, first := range []int{1, builderPiece, capsules} {
		for what, add := range map[string]func(b *stateBuilder) error{
			"a second capsule": func(b *stateBuilder) error { return b.Capsule(capsule(first, capsules+1)) },
			"another capsule":  func(b *stateBuilder) error { return b.Capsule(capsule(capsules+1, first)) },
			"is protected": func(b *stateBuilder) error {
				if err := b.Protect(capsule(first, first).ID, time.Second); err != nil {
					return fmt.Errorf("the first time: %w", err)
				}
				return b.Protect(capsule(first, first).ID, time.Second)
			},
		} {
			b := stateBuilder{Revision: 5, Limits: (&MemoryLedger{}).Limits()}
			require.NoError(t, b.Node(Node{ID: "n"}, 5, 5))
			for i := 1; i <= capsules; i++ {
				require.NoError(t, b.Capsule(capsule(i, i)))
			}
			err := add(&b)
			require.ErrorContains(t, err, what)
			require.NotContains(t, err.Error(), "the first time")
		}
	}
}

// TestReleasedInOrder: the oldest record is dropped, by the order of the commitments, whatever else the proposal does.
func TestReleasedInOrder(t *testing.T) {
	t.Parallel()
	l := &MemoryLedger{Bounds: Limits{Terminal: 1}}
	commit(t, l, PutNode{Node{ID: "n"}}, Submit{IDs: []CapsuleID{"a", "b"}, Spec: &Spec{}})
	_, err := l.Propose(t.Context(), Proposal{ID: ProposalID{1}, Do: []Commitment{
		Release{Capsule: "b", Final: true}, Place{Capsule: "a", Node: "n"}, Release{Capsule: "a", Final: true},
	}})
	require.NoError(t, err)
	s, err := l.Snapshot(t.Context())
	require.NoError(t, err)
	require.Nil(t, s.Capsule("b"), "it was released before a")
	require.NotNil(t, s.Capsule("a"))
}

// restoreFrom restores a dump into a state of its own.
func restoreFrom(r io.Reader) (*State, error) {
	var s State
	if err := s.Restore(r); err != nil {
		return nil, err
	}
	return &s, nil
}

// A state never changes: only a new one can be restored, and one that could not be restored is still new.
func TestRestoreNeedsANewState(t *testing.T) {
	used := kept(t)
	before := dumpOf(t, used)
	for _, dump := range []string{before, "", "{}"} {
		require.ErrorIs(t, used.Restore(strings.NewReader(dump)), ErrInvalid)
		require.Equal(t, before, dumpOf(t, used))
	}
	var s State
	require.ErrorIs(t, s.Restore(strings.NewReader(before[:len(before)/2])), ErrInvalid)
	require.Equal(t, Revision(0), s.Revision())
	require.NoError(t, s.Restore(strings.NewReader(before)))
	require.Equal(t, before, dumpOf(t, &s))
	require.ErrorIs(t, s.Restore(strings.NewReader(before)), ErrInvalid, "it is in use now")
	require.Equal(t, before, dumpOf(t, &s))
}
