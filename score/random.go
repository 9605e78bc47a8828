package score

import (
	"math/bits"

	"github.com/orbitsched/orbit"
)

// Random chooses one of the nodes on which a capsule fits, each with the same probability. It rates nodes by a hash of
// the seed, the number of the decision and the node's id. Engines call Draw before every choice, so the result does not
// depend on which nodes have changed, and a run can be repeated. Without a Draw, the order of the nodes stays the same.
// A share of a device also goes to a random instance with enough free.
//
// It is the Random policy of the openb experiment. Hashes have 53 bits, so that ties, which go to the smallest node id,
// do not happen. The difference matters: a score of only 101 levels that is drawn anew for every capsule packs the
// nodes with small ids (91.1% allocation instead of 87.5%). A place.Sampled with Enough set to 1 chooses as evenly and
// is fastest.
type Random struct {
	// Seed selects the random order of nodes: the same seed gives the same order. Default 0.
	Seed uint64
}

// Score returns a number from 0 to below 1.
func (s Random) Score(node *orbit.NodeState, _ *orbit.Report, _ *orbit.Spec) (value, tie float64) {
	return float64(mix(hashText(s.Seed, string(node.Node.ID)), 0)>>11) / (1 << 53), 0
}

// Draw returns the order of the nodes for one decision.
func (s Random) Draw(decision uint64) (drawn orbit.Score, draws bool) {
	return Random{Seed: mix(s.Seed, decision)}, true
}

// PickDevices chooses a random instance for a share of one device. It reports false, which means the default choice,
// for any other request and if the share fits nowhere.
func (s Random) PickDevices(node *orbit.NodeState, spec *orbit.Spec) (set orbit.DeviceSet, ok bool) {
	if !isShare(&spec.Devices) {
		return 0, false
	}
	least := uint64(0)
	for i := range node.Node.Devices.Count {
		if node.DeviceFree(i) < spec.Devices.Milli {
			continue
		}
		if h := mix(mix(s.Seed, uint64(i)), 0); set == 0 || h < least {
			set, least = 1<<i, h
		}
	}
	return set, set != 0
}

// odd are odd numbers without a pattern: the fractional digits of the square roots of 2, 3, 5 and 7.
var odd = [...]uint64{0x6a09e667f3bcc909, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1}

// mix combines v with the hash h: it folds both halves of a product together, as wyhash does.
func mix(h, v uint64) uint64 {
	hi, lo := bits.Mul64(h^odd[0], v^odd[1])
	return hi ^ lo ^ odd[2]
}

// hashText adds a text to the hash h, eight bytes at a time.
func hashText(h uint64, text string) uint64 {
	h ^= uint64(len(text)) * odd[3]
	for ; len(text) >= 8; text = text[8:] {
		h = mix(h, uint64(text[0])|uint64(text[1])<<8|uint64(text[2])<<16|uint64(text[3])<<24|
			uint64(text[4])<<32|uint64(text[5])<<40|uint64(text[6])<<48|uint64(text[7])<<56)
	}
	rest := uint64(0)
	for i := range len(text) {
		rest |= uint64(text[i]) << (8 * i)
	}
	return mix(h, rest)
}
