package claim_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit/claim"
)

// Without OnError what no caller is told of goes to the default log.
func TestErrorsAreLogged(t *testing.T) {
	var text bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&text, nil)))
	synctest.Test(t, func(t *testing.T) {
		l := &listings{}
		l.set(func() (claim.Listing, error) { return claim.Listing{}, errors.New("unreachable") })
		p := &claim.Pool{Name: "warm", Source: l}
		go func() { _ = p.Run(context.Background()) }()
		synctest.Wait()
		p.Shutdown()
		synctest.Wait()
	})
	slog.SetDefault(before)
	require.Contains(t, text.String(), "orbit: error of a pool of slots")
	require.Contains(t, text.String(), "unreachable")
	require.Contains(t, text.String(), "warm")
}
