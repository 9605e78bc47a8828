package score

import (
	"math/bits"

	"github.com/orbitsched/orbit"
)

// Random rates nodes at random, yet as a pure function: it hashes the seed, the node's id, what is taken of
// it and what the spec asks for. So a node is drawn anew for every spec, and again after each placement on
// it, while nothing else changes its draw; caches stay exact and a run can be repeated.
//
// The openb experiment's Random picks one of the feasible nodes uniformly, which an independent draw for
// each node comes to. Draws have 53 bits, so that ties, which go to the smallest node id, do not happen: a
// draw of 101 levels that is renewed for every capsule packs the nodes with small ids (91.1% allocation
// instead of 87.5%).
type Random struct {
	Seed uint64
}

// Score returns a number from 0 to below 1.
func (s Random) Score(node *orbit.NodeState, _ *orbit.Report, spec *orbit.Spec) (value, tie float64) {
	h := hashText(s.Seed, string(node.Node.ID))
	h = mix(h, hashResources(node.Used())+uint64(node.Capsules))
	h = mix(h, hashDevices(node))
	h = mix(h, hashSpec(spec))
	return float64(mix(h, 0)>>11) / (1 << 53), 0
}

// odd are odd numbers without a pattern: the fractional digits of the square roots of 2, 3, 5, 7, 11, 13,
// 17 and 19.
var odd = [...]uint64{
	0x6a09e667f3bcc909, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
	0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179,
}

// mix folds v into h: both halves of a product, as in wyhash.
func mix(h, v uint64) uint64 {
	hi, lo := bits.Mul64(h^odd[0], v^odd[1])
	return hi ^ lo ^ odd[2]
}

// hashResources is a sum of products, which the processor computes side by side.
func hashResources(r orbit.Resources) uint64 {
	h := uint64(0)
	for d := range r {
		h += uint64(r[d]) * odd[d]
	}
	return h ^ h>>32
}

// hashDevices depends on what is free of each device instance.
func hashDevices(node *orbit.NodeState) uint64 {
	h := uint64(0)
	for i := range node.Node.Devices.Count {
		h = h*odd[3] + uint64(node.DeviceFree(i))
	}
	return h ^ h>>32
}

// hashSpec depends on what sets specs apart most often.
func hashSpec(spec *orbit.Spec) uint64 {
	h := hashResources(spec.Envelope.Reservation)
	h += uint64(spec.Devices.Count)*odd[4] + uint64(spec.Devices.Milli)*odd[5] + uint64(len(spec.Devices.Models))*odd[6]
	h += uint64(spec.Class)*odd[7] + uint64(uint32(spec.Priority))*odd[3]
	return hashText(h, spec.Module)
}

// hashText takes eight bytes at a time.
func hashText(h uint64, text string) uint64 {
	h ^= uint64(len(text)) * odd[7]
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
