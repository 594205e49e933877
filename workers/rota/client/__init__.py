"""The part of Rota that an application uses to declare tasks, enqueue them, inspect them and wait for them."""
