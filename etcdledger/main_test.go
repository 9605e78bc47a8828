package etcdledger

import (
	"flag"
	"os"
	"testing"
)

// TestMain lowers the number of rapid's cases unless the flag sets it, because a case here is a whole history.
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
