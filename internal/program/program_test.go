package program

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a program exits with, and what it says, whatever has become of it.
func TestStatus(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	failed := errors.New("out of nodes")
	for _, c := range []struct {
		ctx  context.Context
		err  error
		code int
		says string
	}{
		{t.Context(), nil, 0, ""},
		{over, nil, 0, ""},
		{t.Context(), &flagsError{flag.ErrHelp}, 0, ""},
		{t.Context(), &flagsError{failed}, 2, ""},
		{t.Context(), failed, 1, "demo: out of nodes\n"},
		{over, failed, 1, "demo: out of nodes\n"},
		{over, fmt.Errorf("pass 3: %w", context.Canceled), 1, "demo: interrupted\n"},
		{t.Context(), context.Canceled, 1, "demo: context canceled\n"},
	} {
		var said strings.Builder
		require.Equal(t, c.code, status(c.ctx, "demo", c.err, &said), "%v", c.err)
		require.Equal(t, c.says, said.String())
	}
}

// Everything is set by flags, and what is wrong is said once.
func TestParse(t *testing.T) {
	for _, c := range []struct{ args, says string }{
		{"-n 1", ""},
		{"-n 0", "demo: -n is 0\n"},
		{"-n 0 more", "demo: unexpected argument \"more\"; everything is set by flags\n"},
		{"-n 1 more", "demo: unexpected argument \"more\"; everything is set by flags\n"},
		{"-what", "flag provided but not defined: -what\nDemo shows it.\n\nFlags:\n  -n int\n    \thow many (default 1)\n"},
		{"-h", "Demo shows it.\n\nFlags:\n  -n int\n    \thow many (default 1)\n"},
	} {
		var said strings.Builder
		f := Flags("demo", "Demo shows it.", &said)
		n := f.Int("n", 1, "how many")
		err := Parse(f, strings.Fields(c.args), func() error {
			if *n < 1 {
				return fmt.Errorf("-n is %d", *n)
			}
			return nil
		})
		require.Equal(t, c.says != "", err != nil, c.args)
		require.Equal(t, c.says, said.String(), c.args)
	}
}
