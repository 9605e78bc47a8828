package orbit

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// away is a ledger that cannot be reached.
type away struct{ Ledger }

func (away) Snapshot(context.Context) (*State, error) { return nil, ErrUnavailable }

// An engine without OnError writes its errors to the default log: ten at once, then one every ten seconds, each with how
// many were left out. With OnError it writes none.
func TestErrorsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		before := slog.Default()
		slog.SetDefault(slog.New(slog.NewTextHandler(&text, nil)))
		defer slog.SetDefault(before)
		run := func(e *Engine) {
			e.Ledger, e.Navigator = away{&MemoryLedger{}}, unbusy{}
			e.Backoff = Backoff{Initial: 100 * time.Millisecond, Max: 100 * time.Millisecond}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			require.NoError(t, e.Run(ctx))
		}
		run(&Engine{Name: "mute"})
		lines := strings.Split(strings.TrimSpace(text.String()), "\n")
		require.GreaterOrEqual(t, len(lines), 11)
		require.LessOrEqual(t, len(lines), 13, text.String())
		require.Contains(t, lines[0], "engine=mute")
		require.Contains(t, lines[0], ErrUnavailable.Error())
		require.Contains(t, lines[9], "dropped=0")
		require.Regexp(t, `dropped=[1-9]\d`, lines[len(lines)-1])

		text.Reset()
		told := 0
		run(&Engine{Name: "told", OnError: func(err error) {
			require.ErrorIs(t, err, ErrUnavailable)
			told++
		}})
		require.Greater(t, told, 100)
		require.Empty(t, text.String())
	})
}

// What loses its bet to another commit is no error: nothing is told of it.
func TestConflictsAreNotLogged(t *testing.T) {
	e := &Engine{OnError: func(err error) { t.Error(err) }}
	round := Round{}
	e.init()
	e.sort(&Proposal{}, Outcome{Err: &Rejection{Kind: ErrConflict}}, &round)
	e.report(t.Context(), round.Errors)
	require.Equal(t, 1, round.Conflicts)
}

// TestUnownedWorkIsLogged: a population without OnError writes work that none of its engines owns to the default log.
func TestUnownedWorkIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		before := slog.Default()
		slog.SetDefault(slog.New(slog.NewTextHandler(&text, nil)))
		defer slog.SetDefault(before)
		l := &MemoryLedger{}
		commit(t, l, Submit{IDs: []CapsuleID{"lost"}, Spec: wants(1), Owner: "elsewhere"})
		engines := []*Engine{{Name: "e", Ledger: l, Navigator: &greedy{}}}
		for i := range 11 {
			engines = append(engines, &Engine{Name: fmt.Sprint("e", i), Ledger: l, Navigator: &greedy{}})
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.NoError(t, (&Population{Engines: engines}).Run(ctx))
		require.Equal(t, 1, strings.Count(text.String(), "lost"), text.String())
		require.Contains(t, text.String(), `none of this population's engines (\"e\", \"e0\", `)
		require.Contains(t, text.String(), `\"e8\", and 2 more): assign it`)
	})
}
