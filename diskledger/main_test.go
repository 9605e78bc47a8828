package diskledger_test

import (
	"flag"
	"os"
	"strconv"
	"testing"

	"github.com/orbitsched/orbit/internal/scale"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		child(dir)
		return
	}
	if err := flag.Set("rapid.checks", strconv.Itoa(scale.Of(20, 200))); err != nil { // before flags are parsed, so a flag wins
		panic(err)
	}
	os.Exit(m.Run())
}
