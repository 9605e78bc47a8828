package race_test

import (
	"testing"
	"testing/synctest"
	"time"
	"fmt"
	"os"

	"github.com/orbitsched/orbit/sim/race"
)

func TestTmp(t *testing.T) {
	start := time.Now()
	var steps int
	var virt time.Duration
	var worst time.Duration
	for i := range *patienceSeeds {
		began := time.Now()
		synctest.Test(t, func(t *testing.T) {
			r := race.Patience(*patienceSeed + uint64(i))
			res := r.Run(*patienceSeed + uint64(i))
			steps += res.Steps
			virt += res.Elapsed
			if res.Elapsed > worst { worst = res.Elapsed; fmt.Println("worst", *patienceSeed+uint64(i), worst, res.Steps) }
			if res.Err != nil {
				fmt.Println(*patienceSeed+uint64(i), res.Steps, res.Elapsed, res.Err)
				os.WriteFile("/tmp/heavy/hist.txt", []byte(res.History), 0o644)
			}
		})
		if d := time.Since(began); d > time.Second { fmt.Println("slow", *patienceSeed+uint64(i), d) }
	}
	fmt.Println(*patienceSeeds, "seeds", time.Since(start), steps, "steps", virt)
}
