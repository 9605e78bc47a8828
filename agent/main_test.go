package agent_test

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/orbitsched/orbit/internal/scale"
)

// TestMain sets how many worlds a property sees, because each of them goes through many minutes.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", strconv.Itoa(scale.Of(10, 400))); err != nil { // before flags are parsed, so a flag wins
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
