"""Steps of training as modules: the loss and its gradients, and the update that an optimizer makes of them."""
