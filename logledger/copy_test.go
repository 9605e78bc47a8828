package logledger_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/logledger"
	"github.com/orbitsched/orbit/logledger/logtest"
)

// original returns a log with a checkpoint and entries after it, whose state is that of n commits.
func original(t *testing.T, n int) logledger.Log {
	log := (&logtest.Store{PageBytes: 200}).Open(logtest.Faults{})
	l := open(t, log, logledger.Options{Bounds: orbit.Limits{Commitments: 77}})
	for i := range n {
		_, err := l.Propose(t.Context(), mark(fmt.Sprint("k", i), strings.Repeat("v", i)))
		require.NoError(t, err)
		if i == n/3 {
			require.NoError(t, l.Checkpoint(t.Context()))
		}
	}
	require.NoError(t, l.Close())
	return log
}

// dump returns the state in a log as text.
func dump(t *testing.T, log logledger.Log) string {
	found, err := logledger.Inspect(t.Context(), log, nil)
	require.NoError(t, err)
	return text(t, found.State)
}

// text returns a state as text.
func text(t *testing.T, s *orbit.State) string {
	var out strings.Builder
	require.NoError(t, s.Dump(&out))
	return out.String()
}

// TestInspect: each part of a log is visited once, in order, and the state is that of the ledger.
func TestInspect(t *testing.T) {
	log := original(t, 10)
	var seen []string
	found, err := logledger.Inspect(t.Context(), log, func(p logledger.Part) error {
		seen = append(seen, fmt.Sprint(p.Index, p.Revision, p.State != nil, len(p.Entry.Changes), p.Bytes > 0))
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, []string{"4 4 true 0 true", "5 5 false 1 true", "6 6 false 1 true", "7 7 false 1 true", "8 8 false 1 true", "9 9 false 1 true", "10 10 false 1 true"}, seen)
	require.Equal(t, text(t, snapshot(t, open(t, log, logledger.Options{}))), text(t, found.State))
	found.State = nil
	require.Equal(t, logledger.Found{Index: 10, Checkpoint: 4, Entries: 6, Changes: 6}, found)
	_, err = logledger.Inspect(t.Context(), log, func(logledger.Part) error { return errBroken })
	require.ErrorIs(t, err, errBroken)
	_, err = logledger.Inspect(t.Context(), (&logtest.Store{}).Open(logtest.Faults{}), nil)
	require.ErrorIs(t, err, logledger.ErrNoCheckpoint)

	log = original(t, 10)
	state := snapshot(t, &orbit.MemoryLedger{})
	_, err = logledger.Inspect(t.Context(), log, func(p logledger.Part) error { // a ledger makes a checkpoint meanwhile
		require.NoError(t, log.SaveCheckpoint(t.Context(), 10, func(w io.Writer) error { return logledger.WriteCheckpoint(w, state) }))
		return log.Trim(t.Context(), 9)
	})
	require.ErrorIs(t, err, logledger.ErrTrimmed)
	require.NotErrorIs(t, err, logledger.ErrCorrupt)
}

// TestInspectDamage: damage is found wherever it is, and its place is named.
func TestInspectDamage(t *testing.T) {
	state := snapshot(t, &orbit.MemoryLedger{})
	checkpoint := func(w io.Writer) error { return logledger.WriteCheckpoint(w, state) }
	empty := func(log logledger.Log) { require.NoError(t, log.SaveCheckpoint(t.Context(), 0, checkpoint)) }
	for want, damage := range map[string]func(log logledger.Log){
		"checkpoint 0": func(log logledger.Log) {
			require.NoError(t, log.SaveCheckpoint(t.Context(), 0, func(w io.Writer) error { _, err := w.Write([]byte{1, 'x', 'y'}); return err }))
		},
		"entry 1": func(log logledger.Log) {
			empty(log)
			add(t, log, `{"revision":2,"do":{"mark":{"key":"k"}}}`)
		},
		"entry 2": func(log logledger.Log) {
			empty(log)
			add(t, log, `{"revision":1,"do":{"mark":{"key":"k","value":"v"}}}`)
			add(t, log, `{"revision":2,"do":{"place":{"capsule":"nobody","node":"n"}}}`)
		},
		"entry 3": func(log logledger.Log) {
			empty(log)
			for i := range 4 {
				add(t, log, fmt.Sprintf(`{"revision":%d,"do":{"mark":{"key":"k","value":"%d"}}}`, i+1, i))
			}
			require.NoError(t, log.SaveCheckpoint(t.Context(), 2, checkpoint))
			require.NoError(t, log.Trim(t.Context(), 3)) // no ledger does this
		},
	} {
		log := (&logtest.Store{}).Open(logtest.Faults{})
		damage(log)
		_, err := logledger.Inspect(t.Context(), log, nil)
		var corrupt *logledger.CorruptError
		require.ErrorAs(t, err, &corrupt, want)
		require.ErrorIs(t, err, logledger.ErrCorrupt)
		require.Equal(t, want, corrupt.Place.String())
	}
}

// add appends an entry.
func add(t *testing.T, log logledger.Log, data string) {
	tail, err := log.Tail(t.Context())
	require.NoError(t, err)
	_, err = log.Append(t.Context(), logledger.Append{Index: tail + 1, Data: []byte(data)})
	require.NoError(t, err)
}

// TestCopy: a copy is the same ledger, which goes on; the original is as it was. A log with anything in it is no target.
func TestCopy(t *testing.T) {
	for _, n := range []int{0, 1, 40} {
		from := original(t, n)
		to := (&logtest.Store{PageBytes: 300}).Open(logtest.Faults{})
		want, visited := dump(t, from), int64(0)
		found, err := logledger.Copy(t.Context(), from, to, logledger.CopyOptions{Visit: func(logledger.Part) error { visited++; return nil }})
		require.NoError(t, err)
		require.Equal(t, found.Entries+1, visited)
		require.Equal(t, []string{want, want, want}, []string{text(t, found.State), dump(t, from), dump(t, to)})
		for _, redo := range []bool{false, true} {
			_, err = logledger.Copy(t.Context(), from, to, logledger.CopyOptions{Redo: redo})
			require.ErrorIs(t, err, logledger.ErrNotEmpty)
		}
		require.Equal(t, want, dump(t, to))
		l := open(t, to, logledger.Options{})
		require.Equal(t, want, text(t, snapshot(t, l)))
		rev, err := l.Propose(t.Context(), mark("new", "v"))
		require.NoError(t, err)
		require.Equal(t, orbit.Revision(n+1), rev)
		require.NoError(t, l.Close())
	}
	made := (&logtest.Store{}).Open(logtest.Faults{})
	require.NoError(t, open(t, made, logledger.Options{}).Close())
	entries := (&logtest.Store{}).Open(logtest.Faults{})
	add(t, entries, "entry")
	damaged := (&logtest.Store{}).Open(logtest.Faults{})
	require.NoError(t, damaged.SaveCheckpoint(t.Context(), 0, func(w io.Writer) error { _, err := w.Write([]byte{1, 'x', 'y'}); return err }))
	for _, to := range []logledger.Log{made, entries, damaged} {
		_, err := logledger.Copy(t.Context(), original(t, 2), to, logledger.CopyOptions{Redo: true})
		require.ErrorIs(t, err, logledger.ErrNotEmpty)
	}
}

// mortal is a log that fails at its write number dies, and at all calls after it. If late is set, that write is made.
type mortal struct {
	*logtest.Handle
	writes, dies int
	late         bool
}

// write is a write.
func (m *mortal) write(do func() error) error {
	m.writes++
	if m.writes < m.dies {
		return do()
	}
	if m.writes == m.dies && m.late {
		_ = do()
	}
	return errBroken
}

func (m *mortal) Append(ctx context.Context, a logledger.Append) (posts []logledger.Post, err error) {
	err = m.write(func() error { posts, err = m.Handle.Append(ctx, a); return err })
	return posts, err
}

func (m *mortal) SaveCheckpoint(ctx context.Context, at logledger.Index, write func(io.Writer) error) error {
	return m.write(func() error { return m.Handle.SaveCheckpoint(ctx, at, write) })
}

func (m *mortal) Trim(ctx context.Context, upTo logledger.Index) error {
	return m.write(func() error { return m.Handle.Trim(ctx, upTo) })
}

// TestCopyInterrupted: wherever a copy ends, and the one that redoes it, what is left is nothing, or no ledger, or all of it. It is
// redone only when that is asked for.
func TestCopyInterrupted(t *testing.T) {
	from := original(t, 9)
	want := dump(t, from)
	copied := func(store *logtest.Store, dies int, late, redo bool) error {
		_, err := logledger.Copy(t.Context(), from, &mortal{Handle: store.Open(logtest.Faults{}), dies: dies, late: late}, logledger.CopyOptions{Redo: redo})
		if err != nil {
			require.ErrorIs(t, err, errBroken)
		}
		return err
	}
	for _, late := range []bool{false, true} {
		for first, isDone := 1, false; !isDone; first++ {
			for second, isRedone := 1, false; !isRedone; second++ {
				store := &logtest.Store{}
				isDone = copied(store, first, late, false) == nil
				if left(t, store, want) { // by the last write, or by the one before
					break
				}
				isRedone = copied(store, second, late, true) == nil
				if !left(t, store, want) {
					require.False(t, isRedone)
					require.NoError(t, copied(store, 1<<30, late, true))
				}
				require.Equal(t, want, dump(t, store.Open(logtest.Faults{})))
			}
		}
	}
}

// left checks what an interrupted copy has left, and reports whether that is the whole ledger.
func left(t *testing.T, store *logtest.Store, want string) (whole bool) {
	log := store.Open(logtest.Faults{})
	found, err := logledger.Inspect(t.Context(), log, nil)
	if err == nil {
		require.Equal(t, want, text(t, found.State))
		return true
	}
	if errors.Is(err, logledger.ErrNoCheckpoint) {
		tail, err := log.Tail(t.Context())
		require.NoError(t, err)
		require.Zero(t, tail)
		return false
	}
	require.ErrorIs(t, err, logledger.ErrUnfinished)
	require.NotErrorIs(t, err, logledger.ErrCorrupt)
	_, err = logledger.Open(t.Context(), log, logledger.Options{})
	require.ErrorIs(t, err, logledger.ErrUnfinished)
	_, err = logledger.Copy(t.Context(), log, (&logtest.Store{}).Open(logtest.Faults{}), logledger.CopyOptions{})
	require.ErrorIs(t, err, logledger.ErrUnfinished, "as a source")
	_, err = logledger.Copy(t.Context(), original(t, 1), log, logledger.CopyOptions{})
	require.ErrorIs(t, err, logledger.ErrUnfinished)
	return false
}

// TestCopyOvertaken: a copy that is still under way when another one redoes it fails, and changes nothing of that, wherever each
// of them is.
func TestCopyOvertaken(t *testing.T) {
	from, other := original(t, 5), original(t, 8)
	want := dump(t, other)
	for at := 1; ; at++ {
		store := &logtest.Store{}
		slow := &interrupted{mortal: mortal{Handle: store.Open(logtest.Faults{}), dies: 1 << 30}, at: at}
		redone := false
		slow.do = func() {
			redone = true
			_, err := logledger.Copy(t.Context(), other, store.Open(logtest.Faults{}), logledger.CopyOptions{Redo: true})
			if !errors.Is(err, logledger.ErrNotEmpty) {
				require.NoError(t, err)
			}
		}
		_, err := logledger.Copy(t.Context(), from, slow, logledger.CopyOptions{})
		if !redone {
			require.NoError(t, err)
			return
		}
		if err == nil { // the other one has found it whole
			require.Equal(t, dump(t, from), dump(t, store.Open(logtest.Faults{})))
			continue
		}
		require.ErrorIs(t, err, logledger.ErrTaken, "before write %d", at)
		require.Equal(t, want, dump(t, store.Open(logtest.Faults{})))
	}
}

// interrupted is a log before whose write number at something else is done.
type interrupted struct {
	mortal
	at int
	do func()
}

func (i *interrupted) before() {
	if i.writes+1 == i.at {
		i.at = 0
		i.do()
	}
}

func (i *interrupted) Append(ctx context.Context, a logledger.Append) ([]logledger.Post, error) {
	i.before()
	return i.mortal.Append(ctx, a)
}

func (i *interrupted) SaveCheckpoint(ctx context.Context, at logledger.Index, write func(io.Writer) error) error {
	i.before()
	return i.mortal.SaveCheckpoint(ctx, at, write)
}

func (i *interrupted) Trim(ctx context.Context, upTo logledger.Index) error {
	i.before()
	return i.mortal.Trim(ctx, upTo)
}
