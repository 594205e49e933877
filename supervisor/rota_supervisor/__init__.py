"""The supervising side of Rota: master, zygote, exporter, configuration and command line."""
