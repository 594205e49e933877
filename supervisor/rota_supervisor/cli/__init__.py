"""The command line `rota`: one module a command, imported when it is called."""

from rota.telemetry.stand_ins import LoadedWhenTouched, importing_with


class _Inspect(LoadedWhenTouched):
    """`inspect` as click takes it for the help of each option: 0.8 MB of a master, which needs it for nothing else."""

    def cleandoc(self, text: str) -> str:
        """Text of one line by itself; all else by what is loaded for it."""
        cleaned: str = self.__getattr__("cleandoc")(text) if "\n" in text else text.lstrip()
        return cleaned


with importing_with([_Inspect("inspect")]):
    import click  # noqa: F401 - imported here so that it is there for all
