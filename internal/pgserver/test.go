//go:build linux

package pgserver

import (
	"errors"
	"os"
	"testing"
)

// ForTest starts a server for one test.
func ForTest(t testing.TB, settings ...string) *Server {
	t.Helper()
	s, err := New(settings...)
	Require(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("the server's last words:\n" + s.Log())
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Require skips a test if the error says that there is no Postgres, unless ORBIT_REQUIRE_POSTGRES is set, and fails it after
// any other error.
func Require(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, ErrMissing) && os.Getenv("ORBIT_REQUIRE_POSTGRES") == "" {
		t.Skip(err, "or set ORBIT_POSTGRES")
	}
	if err != nil {
		t.Fatal(err)
	}
}
