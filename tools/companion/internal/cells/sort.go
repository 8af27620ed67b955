package cells

// sorted sorts keys by their digits; the result is one of the two slices, which must be of one length.
func sorted(keys, scratch []uint32) []uint32 {
	const bits, mask = 11, 1<<11 - 1
	var count [3][1 << bits]uint32
	for _, k := range keys {
		count[0][k&mask]++
		count[1][k>>bits&mask]++
		count[2][k>>(2*bits)]++
	}
	for pass := range count {
		digits, shift := &count[pass], uint(pass*bits)
		if len(keys) == 0 || digits[keys[0]>>shift&mask] == uint32(len(keys)) {
			continue
		}
		var place uint32
		for d := range digits {
			digits[d], place = place, place+digits[d]
		}
		for _, k := range keys {
			d := k >> shift & mask
			scratch[digits[d]] = k
			digits[d]++
		}
		keys, scratch = scratch, keys
	}
	return keys
}
