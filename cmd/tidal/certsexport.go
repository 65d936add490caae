package main

import (
	"github.com/urfave/cli/v2"

	"tidal/pki"
)

func (a *app) certsExportCommand() *cli.Command {
	return &cli.Command{
		Name:  "export",
		Usage: "write certificates in the form of other systems",
		Subcommands: []*cli.Command{{
			Name:      "k8s",
			Usage:     "write a Kubernetes secret: all nodes' certificates, or one node's or client's",
			UsageText: "tidal certs export k8s SECRET --dir DIR [--namespace NS] [--node ID | --client NAME] | kubectl apply -f -",
			Description: "Of one node or client the secret has the type kubernetes.io/tls, with tls.crt, tls.key and ca.crt. Without\n" +
				"--node and --client it has bundle.crt, and ID.crt and ID.key of each node. Private keys go to stdout.",
			Flags: []cli.Flag{
				dirFlag(),
				&cli.StringFlag{Name: "namespace", Usage: "its namespace `NS`"},
				&cli.StringFlag{Name: "node", Usage: "of this node alone, by `ID`"},
				&cli.StringFlag{Name: "client", Usage: "of this client alone, by `NAME`"},
			},
			Action: a.certsExportK8s,
		}},
	}
}

func (a *app) certsExportK8s(c *cli.Context) error {
	args, err := argsOf(c, "SECRET")
	if err != nil {
		return err
	}
	dir, err := dirOf(c)
	if err != nil {
		return err
	}
	text, err := pki.ExportSecret(dir, pki.Secret{Name: args[0], Namespace: c.String("namespace"), Node: c.String("node"), Client: c.String("client")})
	if err != nil {
		return err
	}
	_, err = a.stdout.Write(text)
	return err
}
