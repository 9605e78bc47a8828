//go:build !stress

package scale

const stress = false
