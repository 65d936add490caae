package config_test

import (
	"testing"

	"tidal/node/config"
)

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "17": 17, "1024KiB": 1 << 20, "16MiB": 16 << 20, "16 MiB": 16 << 20, "2GiB": 2 << 30, "1TiB": 1 << 40,
		"": -1, "MiB": -1, "-1MiB": -1, "1.5GiB": -1, "1MB": -1, "16mib": -1, "9999999TiB": -1, "auto": -1,
	} {
		got, err := config.ParseSize(text)
		if err != nil {
			got = -1
		}
		if got != want {
			t.Errorf("%q: %d, want %d (%v)", text, got, want, err)
		}
	}
}

func TestDiskSizes(t *testing.T) {
	for _, x := range []struct {
		disk             config.Disk
		total            int64
		ballast, reserve int64
	}{
		{config.Default().Disk, 1 << 30, 1 << 30 / 100, 1 << 30 / 20},
		{config.Default().Disk, 1 << 40, 1 << 30, 2 << 30},
		{config.Disk{Ballast: "16MiB", Reserve: "64MiB"}, 1 << 40, 16 << 20, 64 << 20},
		{config.Disk{Ballast: "0", Reserve: config.Auto}, 1 << 30, 0, 1 << 30 / 20},
	} {
		if ballast, reserve := x.disk.Sizes(x.total); ballast != x.ballast || reserve != x.reserve {
			t.Errorf("%+v of %d: ballast %d, reserve %d", x.disk, x.total, ballast, reserve)
		}
	}
}
