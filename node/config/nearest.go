package config

// Nearest returns the one of known that name was most likely meant to be, or ""
// if none is near.
func Nearest(name string, known []string) string {
	best, bestAt := "", max(1, len(name)/3)+1
	for _, k := range known {
		if d := distance(name, k); d < bestAt {
			best, bestAt = k, d
		}
	}
	return best
}

// distance counts the bytes to insert, delete or change to make b of a; two that
// changed places count as one.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			cost := last[j]
			if a[i] != b[j] {
				cost++
			}
			row[j+1] = min(cost, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
