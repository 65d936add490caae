package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Auto stands for a size that follows from the size of the file system.
const Auto = "auto"

// What Auto comes to: a share of the file system, and no more than so much.
const (
	autoBallast, mostBallast = 100, 1 << 30 // a hundredth
	autoReserve, mostReserve = 20, 2 << 30  // a twentieth
)

// ParseSize reads a number of bytes: 1048576, 1024KiB, 1MiB, 2GiB or 1TiB.
func ParseSize(text string) (int64, error) {
	number, shift := text, 0
	for _, unit := range []struct {
		name  string
		shift int
	}{{"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}} {
		if head, found := strings.CutSuffix(text, unit.name); found {
			number, shift = strings.TrimSpace(head), unit.shift
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64>>shift {
		return 0, fmt.Errorf("%q is not a size", text)
	}
	return n << shift, nil
}

// sizeOf is ParseSize of what may be Auto, or nothing, which is the same.
func sizeOf(text string, auto int64) (int64, error) {
	if text == Auto || text == "" {
		return auto, nil
	}
	return ParseSize(text)
}

// Sizes returns the bytes of the ballast and of the reserve, for a file system of so
// many. What Validate refuses is 0.
func (d Disk) Sizes(total int64) (ballast, reserve int64) {
	ballast, _ = sizeOf(d.Ballast, min(total/autoBallast, mostBallast))
	reserve, _ = sizeOf(d.Reserve, min(total/autoReserve, mostReserve))
	return ballast, reserve
}
