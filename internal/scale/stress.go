//go:build stress

package scale

const stress = true
