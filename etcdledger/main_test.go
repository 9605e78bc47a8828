package etcdledger

import (
	"flag"
	"os"
	"testing"
)

// TestMain lets properties try fewer cases than usual, unless it is told how many: a case here is a whole history.
func TestMain(m *testing.M) {
	flag.Parse()
	asked := false
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "rapid.checks" })
	if !asked {
		if err := flag.Set("rapid.checks", "15"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
