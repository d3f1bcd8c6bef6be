"""The app of a SuperNode: hands a message to the node's trainer, and sends what that answers."""

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedbench.deployment.app import content, record
from fedbench.deployment.door import got, knock, put

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Ask the trainer."""
    with knock(str(context.node_config["trainer"])) as there:
        put(there, {}, [content(message)])
        _, (answer,) = got(there)
    return Message(record(answer), reply_to=message)
